package egress

import (
	"container/list"
	"encoding/json"
	"net/netip"
	"sync"
	"time"
)

// maxEvents is how many different refusals are remembered. A further one replaces the oldest.
const maxEvents = 200

// Event is a refusal: what a machine tried, and how often. A refusal that is repeated is one event.
type Event struct {
	// Timestamp is when it was last tried, in seconds since 1970.
	Timestamp int64 `json:"timestamp"`
	// Operation is connect for TCP and send for UDP.
	Operation string `json:"operation"`
	// Dest is the destination as address:port.
	Dest string `json:"dest"`
	// Reason is why it was refused.
	Reason string `json:"reason"`
	// Count is how often, since it was first remembered.
	Count uint64 `json:"count"`
}

// Events are the last refusals of one machine. The zero value is empty and ready for use; it is safe for concurrent use.
// As JSON it is the answer to smolvm's GET /api/v1/machines/{name}/egress-events, with a reason and a count in addition.
//
// The machine decides how often something is refused, and what: memory is bounded, and each refusal takes the same short
// time. Refusals of different destinations push out older ones.
type Events struct {
	// Now is the time; by default time.Now.
	Now func() time.Time

	mu    sync.Mutex
	last  list.List // of *remembered, the oldest first
	known map[refusal]*list.Element
}

type refusal struct {
	operation string
	to        netip.AddrPort
	reason    string
}

type remembered struct {
	refusal
	at    time.Time
	count uint64
}

// Refused adds a refusal. The protocol is tcp or udp. It fits usernet.Options.Refused.
func (e *Events) Refused(protocol string, to netip.AddrPort, reason string) {
	operation := "connect"
	if protocol == "udp" {
		operation = "send"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now
	if e.Now != nil {
		now = e.Now
	}
	key := refusal{operation, to, reason}
	element := e.known[key]
	switch {
	case element != nil:
		e.last.MoveToBack(element)
	case e.known == nil:
		e.known = map[refusal]*list.Element{}
	case e.last.Len() >= maxEvents:
		delete(e.known, e.last.Remove(e.last.Front()).(*remembered).refusal)
	}
	if element == nil {
		element = e.last.PushBack(&remembered{refusal: key})
		e.known[key] = element
	}
	event := element.Value.(*remembered)
	event.at = now()
	event.count++
}

// Last returns the last refusals, at most limit of them (all if it is negative), the oldest first.
func (e *Events) Last(limit int) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := []Event{} // a list in JSON, also when it is empty
	element := e.last.Front()
	for skip := e.last.Len() - limit; limit >= 0 && skip > 0; skip-- {
		element = element.Next()
	}
	for ; element != nil; element = element.Next() {
		event := element.Value.(*remembered)
		events = append(events, Event{
			Timestamp: event.at.Unix(), Operation: event.operation, Dest: event.to.String(), Reason: event.reason, Count: event.count,
		})
	}
	return events
}

// MarshalJSON returns all refusals that are remembered.
func (e *Events) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string][]Event{"events": e.Last(-1)})
}
