package service

import (
	"bytes"
	"sync"
)

// mostSaid is how many bytes of a command's output in a pod are kept. An attacker who broke out of a machine may
// control the pod.
const mostSaid = 4 << 10

// bounded keeps the beginning of what is written to it.
type bounded struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write discards what exceeds the limit and reports it as written, so that the command does not fail.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.text.Write(p[:min(len(p), mostSaid-b.text.Len())]) // Write of a bytes.Buffer never fails
	return len(p), nil
}

// String returns what was kept.
func (b *bounded) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
