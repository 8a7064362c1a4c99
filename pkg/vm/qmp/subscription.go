package qmp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxQueued bounds the events that wait for one subscriber, because a guest can make QEMU send any number of them. Further
// events are dropped.
const maxQueued = 1 << 14

// Event is what QEMU sends on its own.
type Event struct {
	Name string
	Data json.RawMessage
	// Time is when QEMU sent it by the host's clock; zero if that clock could not be read.
	Time time.Time
}

// Decode decodes the event's data.
func (e Event) Decode(into any) error {
	if err := json.Unmarshal(e.Data, into); err != nil {
		return fmt.Errorf("decoding the event %s: %w", e.Name, err)
	}
	return nil
}

// Subscription delivers events in the order of their arrival, no matter how slowly they are received. While 16384 wait,
// further ones are dropped.
type Subscription struct {
	client *Client
	names  []string // empty: all
	events chan Event
	wake   chan struct{} // holds a token when there is something new
	closed chan struct{}
	close  sync.Once

	mu    sync.Mutex
	queue []Event
	ended bool // no further events will come
}

// Subscribe receives the events of the given names, or all without names, from now on until Close. Earlier events are
// not delivered: subscribe first, then query the state.
func (c *Client) Subscribe(names ...string) *Subscription {
	s := &Subscription{
		client: c,
		names:  names,
		events: make(chan Event),
		wake:   make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		s.end()
	}
	c.subscriptions[s] = struct{}{}
	go s.run()
	return s
}

// Events returns a channel that is closed after the last event when the connection has ended, and by Close.
func (s *Subscription) Events() <-chan Event { return s.events }

// Close ends the subscription; events that were not received yet are lost. Closing twice is not an error.
func (s *Subscription) Close() {
	s.close.Do(func() {
		s.client.mu.Lock()
		delete(s.client.subscriptions, s)
		s.client.mu.Unlock()
		close(s.closed)
	})
}

// subscribed returns the subscriptions of the client.
func (c *Client) subscribed() []*Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.subscriptions))
}

// publish queues an event for its subscribers.
func (c *Client) publish(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subscriptions {
		if len(s.names) == 0 || slices.Contains(s.names, e.Name) {
			s.add(e)
		}
	}
}

// add queues an event, if there is room.
func (s *Subscription) add(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) < maxQueued {
		s.queue = append(s.queue, e)
		s.awake()
	}
}

// end ends the subscription; queued events are still delivered.
func (s *Subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.awake()
}

func (s *Subscription) awake() {
	select {
	case s.wake <- struct{}{}:
	default: // one token stands for any number of events
	}
}

// run delivers queued events.
func (s *Subscription) run() {
	defer close(s.events)
	for {
		select {
		case <-s.wake:
		case <-s.closed:
			return
		}
		queued, ended := s.take()
		for _, e := range queued {
			select {
			case s.events <- e:
			case <-s.closed:
				return
			}
		}
		if ended {
			return
		}
	}
}

// take empties the queue.
func (s *Subscription) take() (queued []Event, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued, s.queue = s.queue, nil
	return queued, s.ended
}
