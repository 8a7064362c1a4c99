package service

import (
	"bytes"
	"io"
	"testing"
)

// TestWhatACommandSaysIsBounded checks that the output of a command is bounded and that the command does not fail
// because of it.
func TestWhatACommandSaysIsBounded(t *testing.T) {
	var said bounded
	n, err := io.Copy(&said, io.MultiReader(bytes.NewReader([]byte("begins")), bytes.NewReader(make([]byte, 8<<20))))
	if n != 8<<20+6 || err != nil || len(said.String()) != mostSaid || said.String()[:6] != "begins" || said.text.Cap() > 4*mostSaid {
		t.Errorf("%d bytes were taken, %d are kept in %d: %v", n, len(said.String()), said.text.Cap(), err)
	}
}
