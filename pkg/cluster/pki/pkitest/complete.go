// Package pkitest issues the key pairs of a cluster in one step, for tests. The operator does it in two handlers:
// certificates issues those that are missing, and certificaterotation renews those that are due.
package pkitest

import (
	"errors"
	"maps"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// Completed is the result of Complete.
type Completed struct {
	// Set holds a pair for every request that could be fulfilled.
	Set pki.Set
	// Renewed maps the name of each existing pair that changed to the reason.
	Renewed map[string]string
	// Next is when the next pair has to be renewed. It is zero if none ever has to be.
	Next time.Time
	// Failed says why pairs that are due could not be renewed, or are not valid yet.
	Failed error
}

// Complete issues the pairs that are missing and renews those that are due. The error says which pairs are missing.
func Complete(existing pki.Set, requests []pki.Request, issuer pki.Issuer, now time.Time, doubt error) (Completed, error) {
	c := Completed{Set: pki.Set{}, Renewed: map[string]string{}}
	for _, request := range requests {
		if pair, exists := existing[request.Name]; exists {
			c.Set[request.Name] = pair
		}
	}
	var absent error
	for range 2 { // CAs, then what they sign
		fresh, err := pki.Missing(c.Set, requests, issuer, now)
		maps.Copy(c.Set, fresh)
		absent = err
	}
	due := pki.RenewalsOf(c.Set, requests, now).Due
	renewed, failed := pki.Renew(c.Set, requests, due, issuer, now, doubt)
	for name, pair := range renewed {
		c.Set[name], c.Renewed[name] = pair, due[name]
	}
	after := pki.RenewalsOf(c.Set, requests, now)
	c.Next, c.Failed = after.Next, errors.Join(failed, after.Early)
	return c, absent
}
