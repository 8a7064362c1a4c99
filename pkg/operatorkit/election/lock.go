// Package election decides which of several replicas of the operator leads: the holder of a Lease.
//
// client-go's elector decides; the Lock is the Lease that it sees, and informs a fence.Fence of changes to it.
package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/giantswarm/microerror"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// annotationLeaderVersion is on the Lease: the version of its current or last holder.
const annotationLeaderVersion = "kvm-operator.giantswarm.io/leader-version"

// Leases are the Leases of a namespace.
type Leases interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Lock is the Lease as a resourcelock.Interface. Only one goroutine may use it, but Leader is safe for concurrent use.
type Lock struct {
	// Leases are those of Namespace, in which the Lease is called Name.
	Leases          Leases
	Namespace, Name string
	// Holder is the unique name of this replica, and Version is the operator's.
	Holder, Version string
	// Fence is informed when this replica holds the Lease.
	Fence *fence.Fence
	// Record records the beginning of a leadership as an event; nil records nothing.
	Record func(lease *coordinationv1.Lease, message string)

	lease  *coordinationv1.Lease
	leader atomic.Pointer[string]
}

var _ resourcelock.Interface = &Lock{}

// Pace returns when the Lease is renewed and taken, given how long it is valid: the leader tries to renew it every 20th
// of that, and a waiting replica checks it 9 to 20 times in that. After two thirds without success the leader gives up;
// what it has sent by then has the last third to arrive, or to be rejected.
func Pace(holds time.Duration) (deadline, retry time.Duration) { return holds * 2 / 3, holds / 20 }

// Get reads the Lease. The errors are those of the API server, because the elector interprets them.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.Leases.Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	l.keep(lease)
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, microerror.Mask(err)
	}
	if record.HolderIdentity != l.Holder {
		l.Fence.Lose()
	}
	return standAside(record, lease.Annotations[annotationLeaderVersion], l.Version), raw, nil
}

// Create creates the Lease.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}}
	return l.write(record, lease, func(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return l.Leases.Create(ctx, lease, metav1.CreateOptions{})
	})
}

// Update takes the Lease, renews it or releases it. It fails if another replica has written the Lease since it was
// read.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lease == nil {
		return errors.New("the Lease has not been read yet")
	}
	if record.HolderIdentity != l.Holder {
		l.Fence.Release() // everything in progress has to end before another replica may begin
	}
	return l.write(record, l.lease.DeepCopy(), func(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return l.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	})
}

func (l *Lock) write(record resourcelock.LeaderElectionRecord, lease *coordinationv1.Lease, send func(*coordinationv1.Lease) (*coordinationv1.Lease, error)) error {
	holds := record.HolderIdentity == l.Holder
	if err := l.Fence.Over(); holds && err != nil {
		return err // a leader that cannot write is worse than none
	}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationLeaderVersion, l.Version)
	sent := l.Fence.Now()
	written, err := send(lease)
	if err != nil {
		return err
	}
	l.keep(written)
	if holds {
		l.Fence.Renewed(sent)
	}
	return nil
}

func (l *Lock) keep(lease *coordinationv1.Lease) {
	l.lease = lease
	l.leader.Store(lease.Spec.HolderIdentity)
}

// RecordEvent records a change of leadership. If this replica does not hold the Lease, the event would be refused.
func (l *Lock) RecordEvent(message string) {
	if l.Record != nil && l.lease != nil && l.Fence.Check() == nil {
		l.Record(l.lease, l.Holder+" "+message)
	}
}

// Identity names this replica.
func (l *Lock) Identity() string { return l.Holder }

// Describe names the Lease.
func (l *Lock) Describe() string { return l.Namespace + "/" + l.Name }

// Leader says who leads, as far as this replica knows.
func (l *Lock) Leader() string {
	holder := l.leader.Load()
	switch {
	case holder == nil || *holder == "":
		return "no replica is known to hold the Lease " + l.Describe()
	case *holder == l.Holder && l.Fence.Check() == nil:
		return "this replica leads"
	}
	return fmt.Sprintf("the Lease %s is held by %s", l.Describe(), *holder)
}
