// Package lifecycle runs a manager from the moment that its process starts to the one in which it ends: it knows whether
// the caches are filled and what keeps them from it, and ends a replica that no longer leads.
package lifecycle

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/giantswarm/microerror"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// obstacleLength is the maximum length of a reported error, and obstaclesNamed the maximum number of reported kinds.
const (
	obstacleLength = 300
	obstaclesNamed = 3
)

// Lifecycle is that of one manager. The zero value is not usable, see New.
type Lifecycle struct {
	// filled is closed once the caches are filled.
	filled chan struct{}

	mu sync.Mutex
	// obstacles are the last errors of the watches, by kind.
	obstacles map[string]string
}

// New returns a Lifecycle. Its method Note is the watch error handler of the caches, and it is added to the manager.
func New() *Lifecycle { return &Lifecycle{filled: make(chan struct{}), obstacles: map[string]string{}} }

// NeedLeaderElection returns false: the caches of a replica that waits are filled too.
func (*Lifecycle) NeedLeaderElection() bool { return false }

// Start is called by the manager after it has filled the caches.
func (l *Lifecycle) Start(context.Context) error {
	close(l.filled)
	return nil
}

// Filled returns a channel that is closed once the caches are filled.
func (l *Lifecycle) Filled() <-chan struct{} { return l.filled }

// Note records an error of a watch. It is a toolscache.WatchErrorHandlerWithContext.
func (l *Lifecycle) Note(ctx context.Context, reflector *toolscache.Reflector, err error) {
	l.mu.Lock()
	l.obstacles[strings.TrimPrefix(reflector.TypeDescription(), "*")] = text.Beginning(err.Error(), obstacleLength)
	l.mu.Unlock()
	toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// noSuchKind is what client-go says about a kind that the API server does not have.
const noSuchKind = "the server could not find the requested resource"

// Unfilled returns why the caches are not filled: the last error of each kind. It is empty when they are.
func (l *Lifecycle) Unfilled() string {
	select {
	case <-l.filled:
		return ""
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(l.obstacles)) {
		if len(parts) == obstaclesNamed {
			parts = append(parts, "and others")
			break
		}
		text := kind + ": " + l.obstacles[kind]
		if strings.Contains(text, noSuchKind) {
			text += "; apply the CustomResourceDefinitions of this version of the operator"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "caches are not filled yet: the API server has not answered"
	}
	return "caches are not filled yet: " + strings.Join(parts, "; ")
}

// ErrLost means that a replica led and no longer does. It has to restart because what it knows may be out of date.
var ErrLost = &microerror.Error{Kind: "lostError"}

// Run runs the manager until the context ends. It fails if the manager does, and if another replica has taken the lead. In
// the last case it does not wait for work in progress, because that can no longer change anything. lock is nil without
// leader election.
func (l *Lifecycle) Run(ctx context.Context, m manager.Manager, lock *election.Lock) error {
	// The manager does not end while it waits for caches. It would only use all of a CPU, so it learns of the end of
	// the context once they are filled.
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		<-l.filled
		stop()
	})
	ended := make(chan error, 1)
	go func() { ended <- m.Start(managed) }()
	var lost <-chan struct{}
	if lock != nil {
		lost = lock.Fence.Lost()
	}
	select {
	case err := <-ended:
		return microerror.Mask(err)
	case <-lost:
		return microerror.Maskf(ErrLost, "%s", lock.Leader())
	case <-ctx.Done():
	}
	select {
	case <-l.filled:
		return microerror.Mask(<-ended)
	default:
		// There is no work in progress yet that has to end in order.
		return nil
	}
}
