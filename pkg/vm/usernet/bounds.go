package usernet

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
)

const (
	// maxFlows bounds the TCP connections of each direction, and with them the memory that a guest or its clients can
	// make this process use. Further ones are reset. A connection counts until the stack has released it.
	maxFlows = 512
	// maxSessions bounds the pairs of addresses between which datagrams are carried, in each direction. A further one
	// ends the one that was silent longest.
	maxSessions = 1024
	// maxQueries bounds the questions to resolvers that are not answered yet.
	maxQueries = 64
	// maxResolvers is how many resolvers a guest can have, as in resolv.conf(5). Each may be asked at the same time.
	maxResolvers = 3
	// greed is how many times as much as what is still free one client may have. So one client gets at most three
	// quarters of everything, and the next one three quarters of the rest; it takes five to leave nothing.
	greed = 3
)

// bounds are what one guest and its clients may use. Sockets of the process are: one for each connection of both
// directions, one for each session that the guest begins, some more for those that are about to be closed, one for each
// resolver that is being asked, and one for each published port. A session that a client begins uses none.
type bounds struct{ flows, sessions, closing, queries int }

// boundsWithin returns bounds that use at most three fifths of a process's file descriptors, without those of published
// ports: at most 2304, if the process may open 4096 or more.
func boundsWithin(descriptors uint64) bounds {
	part := func(most, of int) int { return max(1, int(min(uint64(most), descriptors/uint64(of)))) } //nolint:gosec // G115: both are small constants
	return bounds{flows: part(maxFlows, 8), sessions: part(maxSessions, 4), closing: part(maxSessions/16, 64), queries: part(maxQueries, 64)}
}

// descriptors is how many files the process may have open at most.
func (b bounds) descriptors() int { return 2*b.flows + b.sessions + b.closing + maxResolvers*b.queries }

// ownBounds returns the bounds that fit this process.
func ownBounds() (bounds, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return bounds{}, fmt.Errorf("finding how many files may be open: %w", err)
	}
	return boundsWithin(limit.Cur), nil
}

// slots limit how many of something may exist at a time.
type slots chan struct{}

func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }

// shares are slots that clients compete for.
type shares struct {
	most int

	mu    sync.Mutex
	taken int
	held  map[netip.Addr]int
}

func newShares(most int) *shares { return &shares{most: most, held: map[netip.Addr]int{}} }

// take takes a slot, unless all are taken or the client has too many.
func (s *shares) take(client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client] >= greed*(s.most-s.taken) {
		return false
	}
	s.taken++
	s.held[client]++
	return true
}

func (s *shares) give(client netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.held[client]--; s.held[client] == 0 {
		delete(s.held, client)
	}
}
