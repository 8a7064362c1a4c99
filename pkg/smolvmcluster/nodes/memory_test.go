package nodes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// TestWhatARuntimeTellsIsBounded in bytes, and machines that can be no SmolVM's are not remembered.
func TestWhatARuntimeTellsIsBounded(t *testing.T) {
	large := func(n int) []api.Machine {
		all := make([]api.Machine, n)
		for i := range all {
			all[i] = api.Machine{Name: fmt.Sprint("k8s-m", i), Message: strings.Repeat("m", 60<<10)}
		}
		return all
	}
	for name, test := range map[string]struct {
		machines []api.Machine
		want     string
		kept     int
	}{
		"as much as there may be":  {large(500), "", 500},
		"one that is too large":    {[]api.Machine{{Name: "k8s-m", Message: strings.Repeat("m", 64<<10)}}, "its report of machine k8s-m has more than 65536 bytes", 0},
		"too much together":        {large(560), "its report of all machines has more than 33554432 bytes", 0},
		"others, of whatever size": {[]api.Machine{{Name: "other", Message: strings.Repeat("m", 1<<20)}, {Name: "k8s-m"}}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(Options{Times: short, Changed: func(string, string) {}}, Node{Name: "n1"}, nil)
			defer s.end()
			err := s.takeAll(t.Context(), test.machines)
			if test.want == "" && (err != nil || len(s.machines) != test.kept) {
				t.Errorf("%d are kept, want %d; the error is %v", len(s.machines), test.kept, err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || s.heard) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			for _, m := range test.machines {
				s.unlearn(m.Name)
			}
			if s.sum != 0 || len(s.sizes) != 0 {
				t.Errorf("%d bytes of %d machines are counted once all are gone", s.sum, len(s.sizes))
			}
		})
	}
}

// TestAChangeThatIsTooLargeEndsTheSession with a reason.
func TestAChangeThatIsTooLargeEndsTheSession(t *testing.T) {
	p, _ := pool(t)
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, r, api.WatchEvent{Type: api.WatchSnapshot}, api.WatchEvent{Type: api.WatchChanged, Machine: &api.Machine{Name: "k8s-m", Message: strings.Repeat("m", 1<<20)}})
	})
	p.Follow(node)
	until(t, "it is reported", func() bool {
		return strings.Contains(p.Look("n1", "k8s-other").Message, "more than 65536 bytes")
	})
}
