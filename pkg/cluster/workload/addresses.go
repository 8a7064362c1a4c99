package workload

import (
	"slices"
	"sync"
)

// addresses selects the order in which addresses are tried.
type addresses struct {
	mu   sync.Mutex
	list []string
	// good is the address that responded last.
	good string
	// last are the addresses to try after all others: at the last attempt, they did not respond in time or were not
	// ready.
	last map[string]bool
}

// set replaces the list and reports whether it changed. What is known of remaining addresses is kept.
func (a *addresses) set(list []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Equal(a.list, list) {
		return false
	}
	a.list = slices.Clone(list)
	for address := range a.last {
		if !slices.Contains(list, address) {
			delete(a.last, address)
		}
	}
	return true
}

// order returns the addresses in the order in which to try them now.
func (a *addresses) order() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return order(a.list, a.good, a.last)
}

// distrust records an error of the address that responded last.
func (a *addresses) distrust(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.good != "" {
		a.note(a.good, err)
	}
}

// tried records the result of an attempt at an address.
func (a *addresses) tried(address string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(address, err)
}

func (a *addresses) note(address string, err error) {
	delete(a.last, address)
	if err == nil {
		a.good = address
		return
	}
	if a.good == address {
		a.good = ""
	}
	if reason := classify(err); reason == Timeout || reason == NotReady {
		if a.last == nil {
			a.last = map[string]bool{}
		}
		a.last[address] = true
	}
}

// order puts the good address first and the addresses of last at the end: each of those costs seconds, or leads to an
// API server that accepts connections although it cannot be used now. The order of the others does not change.
func order(list []string, good string, last map[string]bool) []string {
	rank := func(address string) int {
		switch {
		case address == good:
			return 0
		case last[address]:
			return 2
		default:
			return 1
		}
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b string) int { return rank(a) - rank(b) })
	return slices.Compact(sorted)
}
