package election_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// leases is an API server with only one Lease.
type leases struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version byte
	// before is called when a request arrives; its error is the response.
	before func() error
}

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil, apierrors.NewNotFound(resource, "kvm-operator")
	}
	return l.lease.DeepCopy(), nil
}

func (l *leases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(lease)
}

func (l *leases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.write(lease)
}

func (l *leases) write(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if l.before != nil {
		if err := l.before(); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil && l.lease.ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(resource, lease.Name, errors.New("another replica was faster"))
	}
	l.version++
	l.lease = lease.DeepCopy()
	l.lease.ResourceVersion = string('a' + rune(l.version))
	return l.lease.DeepCopy(), nil
}

// now is a clock that tests set.
type now struct{ time.Duration }

func (n *now) get() time.Duration { return n.Duration }

const term = 10 * time.Second

// replica returns the Lock of a replica.
func replica(l *leases, name, version string, clock func() time.Duration) *election.Lock {
	return &election.Lock{
		Leases: l, Namespace: "giantswarm", Name: "kvm-operator", Holder: name, Version: version,
		Fence: fence.New("giantswarm/kvm-operator", term, clock),
	}
}

func heldBy(name string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: name, LeaseDurationSeconds: 15}
}

// TestTheFenceCountsFromBeforeTheRenewalIsSent: the API server may take any time until it has written.
func TestTheFenceCountsFromBeforeTheRenewalIsSent(t *testing.T) {
	clock := &now{time.Minute}
	server := &leases{}
	a := replica(server, "a", "4.0.0", clock.get)
	server.before = func() error {
		if a.Fence.Check() == nil {
			t.Error("the fence is open before the Lease is held")
		}
		clock.Duration += 4 * time.Second
		return nil
	}
	if err := a.Create(t.Context(), heldBy("a")); err != nil {
		t.Fatal(err)
	}
	if err := a.Fence.Check(); err != nil {
		t.Errorf("the holder of the Lease may not write: %s", err)
	}
	clock.Duration += 6 * time.Second
	if a.Fence.Check() == nil {
		t.Error("the term begins with the answer, want the request")
	}
	server.before = nil
	if err := a.Update(t.Context(), heldBy("a")); err != nil {
		t.Fatal(err)
	}
	if err := a.Fence.Check(); err != nil {
		t.Errorf("the renewed Lease lets nothing be written: %s", err)
	}
}

func TestAFailedRenewalOpensNothing(t *testing.T) {
	clock := &now{time.Minute}
	server := &leases{}
	a := replica(server, "a", "4.0.0", clock.get)
	if err := a.Create(t.Context(), heldBy("a")); err != nil {
		t.Fatal(err)
	}
	server.before = func() error { return errors.New("the API server is not there") }
	clock.Duration += term
	if err := a.Update(t.Context(), heldBy("a")); err == nil || a.Fence.Check() == nil {
		t.Errorf("err = %v, the fence says %v", err, a.Fence.Check())
	}
}

// TestALeaderThatLostTheLeaseNeverWritesAgain, although it would get the Lease again.
func TestALeaderThatLostTheLeaseNeverWritesAgain(t *testing.T) {
	server := &leases{}
	a, b := replica(server, "a", "4.0.0", fence.SinceBoot), replica(server, "b", "4.0.0", fence.SinceBoot)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.Create(t.Context(), heldBy("a")))
	_, _, err := b.Get(t.Context())
	must(err)
	must(b.Update(t.Context(), heldBy("b")))
	if err := a.Update(t.Context(), heldBy("a")); !apierrors.IsConflict(err) {
		t.Errorf("renewing what another has taken: %v", err)
	}
	must(b.Update(t.Context(), heldBy("")))
	if b.Fence.Check() == nil {
		t.Error("who has given the Lease up may write")
	}
	_, _, err = a.Get(t.Context())
	must(err)
	select {
	case <-a.Fence.Lost():
	default:
		t.Error("the loss is not reported")
	}
	if err := a.Update(t.Context(), heldBy("a")); !errors.Is(err, fence.ErrRefused) || a.Fence.Check() == nil {
		t.Errorf("it takes the Lease again: %v", err)
	}
	if *server.lease.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is held by %q", *server.lease.Spec.HolderIdentity)
	}
}

// TestTheFenceIsClosedBeforeTheLeaseIsGivenUp: another replica may have the Lease before the response arrives.
func TestTheFenceIsClosedBeforeTheLeaseIsGivenUp(t *testing.T) {
	server := &leases{}
	a := replica(server, "a", "4.0.0", fence.SinceBoot)
	if err := a.Create(t.Context(), heldBy("a")); err != nil {
		t.Fatal(err)
	}
	server.before = func() error {
		if a.Fence.Check() == nil {
			t.Error("the fence is open while the Lease is given up")
		}
		return nil
	}
	if err := a.Update(t.Context(), heldBy("")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.Fence.Lost():
		t.Error("what was given up is reported as lost")
	default:
	}
}

func TestEventsAreToldByTheHolderOnly(t *testing.T) {
	var told []string
	server := &leases{}
	a := replica(server, "a", "4.0.0", fence.SinceBoot)
	a.Record = func(lease *coordinationv1.Lease, message string) { told = append(told, lease.Name+": "+message) }
	a.RecordEvent("became leader")
	if err := a.Create(t.Context(), heldBy("a")); err != nil {
		t.Fatal(err)
	}
	a.RecordEvent("became leader")
	if err := a.Update(t.Context(), heldBy("")); err != nil {
		t.Fatal(err)
	}
	a.RecordEvent("stopped leading")
	if got := strings.Join(told, "; "); got != "kvm-operator: a became leader" {
		t.Errorf("told is %q", got)
	}
}

func TestItIsSaidWhoLeads(t *testing.T) {
	server := &leases{}
	a, b := replica(server, "a", "4.0.0", fence.SinceBoot), replica(server, "b", "4.0.0", fence.SinceBoot)
	says := func(lock *election.Lock, want string) {
		t.Helper()
		if got := lock.Leader(); got != want {
			t.Errorf("%s says %q, want %q", lock.Holder, got, want)
		}
	}
	says(a, "no replica is known to hold the Lease giantswarm/kvm-operator")
	if err := a.Create(t.Context(), heldBy("a")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(a, "this replica leads")
	says(b, "the Lease giantswarm/kvm-operator is held by a")
}
