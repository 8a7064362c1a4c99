package runner

import (
	"os"

	"golang.org/x/term"
)

// raw passes a terminal's keystrokes through one by one, Ctrl-C included. It returns the function that undoes this, or
// nil when file is no terminal.
func raw(file *os.File) func() {
	descriptor := int(file.Fd())
	if !term.IsTerminal(descriptor) {
		return nil
	}
	state, err := term.MakeRaw(descriptor)
	if err != nil {
		return nil
	}
	return func() { _ = term.Restore(descriptor, state) }
}
