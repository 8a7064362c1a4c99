package usernet

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// sessionIdle is how long a pair of addresses may be silent (RFC 4787, REQ-5: at least two minutes).
	sessionIdle = 2 * time.Minute
	// newClients is how many new clients of published ports are accepted per second. Datagrams of others are dropped.
	newClients = 500
	// newOfOne is how many of them may have the same address.
	newOfOne = newClients * greed / (greed + 1)
)

// session is a pair of addresses between which datagrams are carried.
type session struct {
	used  atomic.Int64 // when a datagram was last carried, in nanoseconds since 1970
	end   context.CancelFunc
	owner netip.Addr
	// inAll and inOwned are nil once the session has ended.
	inAll, inOwned *list.Element
}

func (s *session) silent() time.Duration { return time.Since(time.Unix(0, s.used.Load())) }

// owner is a client with its sessions.
type owner struct {
	owned list.List // as sessions.all
	begun *rate.Limiter
}

// sessions are the existing sessions, the one that was silent longest first.
type sessions struct {
	most int

	mu     sync.Mutex
	all    list.List
	owners map[netip.Addr]*owner
}

func newSessions(most int) *sessions { return &sessions{most: most, owners: map[netip.Addr]*owner{}} }

// admits reports whether a client may begin a session now. One without sessions may.
func (s *sessions) admits(client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.owners[client]
	return known == nil || known.begun.Allow()
}

// begin adds a session that ends with its context. If there are too many, it ends the one that was silent longest; if
// its client has too many, then one of that client. The guest itself is no client: its address is invalid here.
func (s *sessions) begin(ctx context.Context, client netip.Addr) (context.Context, *session) {
	ctx, cancel := context.WithCancel(ctx)
	begun := &session{end: cancel, owner: client}
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.most - s.all.Len()
	known := s.owners[client]
	switch {
	case client.IsValid() && known != nil && known.owned.Len() >= greed*free:
		s.remove(known.owned.Front().Value.(*session))
	case free <= 0:
		s.remove(s.all.Front().Value.(*session))
	}
	begun.used.Store(time.Now().UnixNano())
	begun.inAll = s.all.PushBack(begun)
	if known = s.owners[client]; known == nil {
		known = &owner{begun: rate.NewLimiter(newOfOne, newOfOne)}
		s.owners[client] = known
	}
	begun.inOwned = known.owned.PushBack(begun)
	return ctx, begun
}

// use records that a datagram was carried.
func (s *sessions) use(in *session) {
	in.used.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.inAll != nil {
		s.all.MoveToBack(in.inAll)
		s.owners[in.owner].owned.MoveToBack(in.inOwned)
	}
}

func (s *sessions) ended(over *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(over)
}

// remove ends a session.
func (s *sessions) remove(over *session) {
	over.end()
	if over.inAll == nil {
		return
	}
	s.all.Remove(over.inAll)
	known := s.owners[over.owner]
	known.owned.Remove(over.inOwned)
	if known.owned.Len() == 0 {
		delete(s.owners, over.owner)
	}
	over.inAll, over.inOwned = nil, nil
}
