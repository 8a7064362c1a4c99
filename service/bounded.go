package service

import "bytes"

// mostSaid is how many bytes are kept of what a command in a pod says. The pod may be in the hands of whoever broke out of its machine.
const mostSaid = 4 << 10

// bounded keeps the beginning of what is written to it.
type bounded struct{ text bytes.Buffer }

// Write drops what is too much and says that it was written: the command is not to fail of it.
func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.text.Write(p[:min(len(p), mostSaid-b.text.Len())]) // it never fails
	return len(p), nil
}

// String is what was kept.
func (b *bounded) String() string { return b.text.String() }
