package workload

import (
	"slices"
	"sync"
)

// addresses chooses where to try first.
type addresses struct {
	mu   sync.Mutex
	list []string
	// good answered last.
	good string
	// last are those to be tried after all others: they did not answer in time, or were not ready, when they were tried last.
	last map[string]bool
}

// set replaces the list and says whether it was another one. What is known of addresses that stay is kept.
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

// order is the sequence in which to try the addresses now.
func (a *addresses) order() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return order(a.list, a.good, a.last)
}

// distrust notes what became of the address that answered last.
func (a *addresses) distrust(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.good != "" {
		a.note(a.good, err)
	}
}

// tried notes what became of an address.
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

// order puts the good address first, and those to be tried after all others last: each of them costs seconds, or leads to an API server
// that is of no use now, which goes on to take connections. The rest stays as it is.
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
