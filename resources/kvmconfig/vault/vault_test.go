package vault

import (
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// revoked counts revocations.
type revoked int

func (r *revoked) Revoke([]pki.Request) error {
	*r++
	return nil
}

// TestWhoseAuthoritiesAreRevoked: a cluster's own CAs are revoked, even if its namespace was deleted before, and never
// those of another cluster.
func TestWhoseAuthoritiesAreRevoked(t *testing.T) {
	for name, test := range map[string]struct {
		owns, taken bool
		want        revoked
	}{
		"its namespace is its own":      {true, false, 1},
		"its namespace is gone":         {false, false, 1},
		"its id belongs to another one": {false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var got revoked
			s := &state.Cluster{Config: fixture.MakeCluster("abc").Obj(), OwnsNamespace: test.owns, NamespaceTaken: test.taken}
			if _, err := New(&got).EnsureDeleted(t.Context(), s); err != nil || got != test.want {
				t.Errorf("it was revoked %d times, want %d (%v)", got, test.want, err)
			}
		})
	}
}
