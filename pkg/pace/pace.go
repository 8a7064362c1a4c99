// Package pace holds what programs of nodes are told when software emulates the processors.
package pace

// Variable is one of a program's environment.
type Variable struct{ Name, Value string }

// Emulated is the environment of Go programs on an emulated node.
//
// They collect garbage when there is four times as much as what is in use, not twice: memory is what such a node has plenty of. And
// their scheduler waits until a goroutine calls a function instead of sending its thread a signal after ten milliseconds, within which
// hardly anything is done: in an idle API server a fifth of the samples stood where such a signal is taken.
//
// See https://go.dev/doc/gc-guide#GOGC and https://pkg.go.dev/runtime#hdr-Environment_Variables.
func Emulated() []Variable {
	return []Variable{{"GOGC", "300"}, {"GODEBUG", "asyncpreemptoff=1"}}
}
