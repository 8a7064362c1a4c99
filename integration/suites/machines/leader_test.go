package machines_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

// holds is for how long a leader is the leader without renewing that: by default, and long enough for a replica beside the
// operators of other tests.
const holds = 15 * time.Second

func elected(p *place) option {
	return func(c *machines.Config) {
		c.Election = election.Config{Namespace: p.namespace, Name: "machines", Holds: holds}
	}
}

// severed is a transport that passes nothing on once it is cut: for the API server, the operator is dead.
type severed struct{ cut atomic.Bool }

func (s *severed) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if s.cut.Load() {
			return nil, lab.ErrCrashed
		}
		return next.RoundTrip(request)
	})
}

// TestAnotherReplicaTakesOver: the leader dies in the middle of its work, another one takes over, and every object is
// created once.
func TestAnotherReplicaTakesOver(t *testing.T) {
	t.Parallel()
	needKubeVirt(t)
	p := newPlace(t)
	line := &severed{}
	first, err := start(elected(p), wrapped(line.wrap), confined(p.namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.close() }() // it has lost the lead
	p.operator = first
	m := p.machine("vm-a", "{template: small}")
	p.await(m, runs)
	second := p.serve(elected(p))
	p.until(second.ready)
	p.createMany(20)
	p.until(func() error {
		if n := len(posts(first, "/virtualmachines")); n < 5 {
			return fmt.Errorf("the leader has made %d VirtualMachines", n)
		}
		return nil
	})
	if writes := writesBeside(second, "/leases"); len(writes) > 0 {
		t.Errorf("the replica that waits writes: %v", writes)
	}
	line.cut.Store(true)
	cut := time.Now()
	p.operator = second
	p.longUntil(func() error { return p.allRun(21) })
	t.Logf("all run %s after the leader was cut off; a Lease holds %s", time.Since(cut).Round(time.Millisecond), holds)
	p.until(func() error {
		select {
		case <-first.ended:
			return nil
		default:
			return errors.New("the former leader has not ended")
		}
	})
	// Each VirtualMachine that exists was created by one answered request.
	made := map[string]int{}
	for _, r := range append(posts(first, "/virtualmachines"), posts(second, "/virtualmachines")...) {
		made[r.Path]++
	}
	if n := made[fmt.Sprintf("/apis/kubevirt.io/v1/namespaces/%s/virtualmachines", p.namespace)]; n > 21 {
		t.Errorf("%d VirtualMachines were created for 21 Machines", n)
	}
	p.endAll()
}

// posts returns the creations that an operator got an answer to.
func posts(o *operator, resource string) []lab.Request {
	var found []lab.Request
	for _, r := range o.Requests.Writes() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, resource) && r.Status == http.StatusCreated {
			found = append(found, r)
		}
	}
	return found
}

// writesBeside returns the writes of an operator that are not to a resource.
func writesBeside(o *operator, resource string) []lab.Request {
	var found []lab.Request
	for _, r := range o.Requests.Writes() {
		if !strings.Contains(r.Path, resource) {
			found = append(found, r)
		}
	}
	return found
}
