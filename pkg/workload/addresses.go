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
	// silent are those that did not answer in time when they were tried last.
	silent map[string]bool
}

// set replaces the list and says whether it was another one. What is known of addresses that stay is kept.
func (a *addresses) set(list []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Equal(a.list, list) {
		return false
	}
	a.list = slices.Clone(list)
	for address := range a.silent {
		if !slices.Contains(list, address) {
			delete(a.silent, address)
		}
	}
	return true
}

// order is the sequence in which to try the addresses now.
func (a *addresses) order() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return order(a.list, a.good, a.silent)
}

// tried notes what became of an address.
func (a *addresses) tried(address string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.silent, address)
	if err == nil {
		a.good = address
		return
	}
	if a.good == address {
		a.good = ""
	}
	if classify(err) == Timeout {
		if a.silent == nil {
			a.silent = map[string]bool{}
		}
		a.silent[address] = true
	}
}

// order puts the good address first and the silent ones last, for each of them costs seconds. The rest stays as it is.
func order(list []string, good string, silent map[string]bool) []string {
	rank := func(address string) int {
		switch {
		case address == good:
			return 0
		case silent[address]:
			return 2
		default:
			return 1
		}
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b string) int { return rank(a) - rank(b) })
	return slices.Compact(sorted)
}
