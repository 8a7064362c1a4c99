package vmrunner

import "sync"

// news tells those who report that something is known that was not. The zero value is ready.
type news struct {
	mu   sync.Mutex
	next chan struct{}
}

// tell wakes all that wait.
func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// wait returns a channel that is closed when there is something new. Call it before reading what is known.
func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}
