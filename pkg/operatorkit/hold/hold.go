// Package hold remembers what is to be left alone for some time, and why. It is what k8s.io/apimachinery/pkg/util/cache has
// in Expiring, with types, with a clock that only tells the time, and with how long a value still counts.
package hold

import (
	"sync"
	"time"
)

// Held are values that end by themselves. The zero value is ready for use, and its methods are safe for concurrent use.
type Held[K comparable, V any] struct {
	mu    sync.Mutex
	all   map[K]held[V]
	swept time.Time
}

type held[V any] struct {
	value V
	until time.Time
}

// Get returns the value of a key, and for how long it still counts; zero if there is none.
func (h *Held[K, V]) Get(key K, now time.Time) (value V, left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.all[key]; now.Before(one.until) {
		return one.value, one.until.Sub(now)
	}
	return value, 0
}

// Put gives a key a value for some time.
func (h *Held[K, V]) Put(key K, value V, now time.Time, lasts time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// So each value is passed over a few times at most, however many there are.
	if since := now.Sub(h.swept); since >= lasts || since < 0 {
		h.sweep(now)
	}
	if h.all == nil {
		h.all = map[K]held[V]{}
	}
	h.all[key] = held[V]{value: value, until: now.Add(lasts)}
}

// Drop forgets the value of a key.
func (h *Held[K, V]) Drop(key K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, key)
}

// Len returns how many values count.
func (h *Held[K, V]) Len(now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(now)
	return len(h.all)
}

// sweep forgets the values that have ended. mu is held.
func (h *Held[K, V]) sweep(now time.Time) {
	h.swept = now
	for key, one := range h.all {
		if !now.Before(one.until) {
			delete(h.all, key)
		}
	}
}
