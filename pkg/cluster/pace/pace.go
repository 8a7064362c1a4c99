// Package pace has the settings of programs on nodes whose processors are emulated in software.
package pace

// Variable is a variable of a program's environment.
type Variable struct{ Name, Value string }

// Emulated is the environment of Go programs on an emulated node.
//
// They collect garbage when memory has grown to four times what is in use, not twice, because such a node has enough
// memory. And their scheduler waits until a goroutine calls a function, instead of sending its thread a signal after
// ten milliseconds, in which hardly anything is done: in an idle API server a fifth of the samples were where such a
// signal is handled.
//
// See https://go.dev/doc/gc-guide#GOGC and https://pkg.go.dev/runtime#hdr-Environment_Variables.
func Emulated() []Variable {
	return []Variable{{"GOGC", "300"}, {"GODEBUG", "asyncpreemptoff=1"}}
}
