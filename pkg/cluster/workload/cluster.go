package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// Cluster is one workload cluster. Its methods are safe for concurrent use and never block.
type Cluster struct {
	name      types.NamespacedName
	access    Access
	addresses *addresses
	options   Options
	// allowance is how much caches may read of the cluster, over all connections, and intake how much of that they may
	// store.
	allowance, intake *rate.Limiter
	// wake receives a value when there is a reason to try at once.
	wake chan struct{}
	// life ends when the cluster is forgotten or replaced.
	life   context.Context // the cluster outlives the call that creates it
	cancel context.CancelFunc

	mu      sync.Mutex
	state   State
	session *session  // nil unless connected
	since   time.Time // when it was connected or disconnected last
}

func newCluster(name types.NamespacedName, a Access, o Options) *Cluster {
	c := &Cluster{
		name: name, access: a, addresses: &addresses{list: a.Addresses}, options: o,
		allowance: newAllowance(), intake: newIntake(), wake: make(chan struct{}, 1), state: State{Phase: Connecting}, since: o.Clock.Now(),
	}
	c.life, c.cancel = context.WithCancel(context.Background())
	observe(name.String(), c.state)
	return c
}

// State returns what is known of the connection to the cluster.
func (c *Cluster) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Silent returns for how long the cluster has not been connected; zero while it is.
func (c *Cluster) Silent() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		return 0
	}
	return c.options.Clock.Since(c.since)
}

// Watched returns for how long the cluster has been connected without interruption; zero while it is not.
func (c *Cluster) Watched() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return 0
	}
	return c.options.Clock.Since(c.since)
}

// Client returns a client that reads from the cache and writes to the workload cluster; reads see the client's own
// writes. It returns false unless the cluster is connected. The client belongs to one connection: once that is lost,
// requests and reads fail at once.
func (c *Cluster) Client() (client.Client, bool) {
	s := c.current()
	if s == nil {
		return nil, false
	}
	return s.client, true
}

// Live returns a reader that reads from the workload cluster itself; otherwise it is like Client.
func (c *Cluster) Live() (client.Reader, bool) {
	s := c.current()
	if s == nil {
		return nil, false
	}
	return s.live, true
}

// Clock returns the clock of the workload cluster's API server, because timestamps in its objects are in that time;
// otherwise it is like Client.
func (c *Cluster) Clock() (clock.PassiveClock, bool) {
	s := c.current()
	if s == nil {
		return nil, false
	}
	return s.link.clock, true
}

// Engine returns an engine that applies sets of objects of Options.Kinds over Client and Live. Each connection has its
// own engine, so that what it remembers of objects matches the cache.
func (c *Cluster) Engine() (*apply.Engine, bool) {
	s := c.current()
	if s == nil {
		return nil, false
	}
	return s.engine, true
}

// Nodes returns the workload cluster's Nodes by name, trimmed to what decisions need. They share memory with the cache
// and must not be changed. It returns false unless the cluster is connected.
func (c *Cluster) Nodes() ([]corev1.Node, bool) {
	s := c.current()
	if s == nil {
		return nil, false
	}
	return s.nodes(), true
}

// Requests returns the CertificateSigningRequests of kubelets by name; otherwise it is like Nodes.
func (c *Cluster) Requests() ([]certificatesv1.CertificateSigningRequest, bool) {
	s := c.current()
	if s == nil {
		return nil, false
	}
	return s.requests(), true
}

// AddOns returns the DaemonSets and Deployments that the operator applied, in no order; otherwise it is like Nodes.
func (c *Cluster) AddOns() ([]appsv1.DaemonSet, []appsv1.Deployment, bool) {
	s := c.current()
	if s == nil {
		return nil, nil, false
	}
	daemonSets, deployments := s.addOns()
	return daemonSets, deployments, true
}

func (c *Cluster) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// reachAt sets the addresses. An existing connection is kept; if there is none, the addresses are tried at once.
func (c *Cluster) reachAt(list []string) {
	if !c.addresses.set(list) {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// end ends the goroutine of the cluster; the cluster reports nothing afterwards.
func (c *Cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() == nil {
		c.cancel()
		c.session = nil
		forgetMetrics(c.name.String())
	}
}

// setState publishes a state. When a listener is notified, the state and its session are already set.
func (c *Cluster) setState(next State, s *session) {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return
	}
	changed := c.state != next
	if (c.session == nil) != (s == nil) {
		c.since = c.options.Clock.Now()
	}
	c.state, c.session = next, s
	if changed {
		observe(c.name.String(), next)
	}
	c.mu.Unlock()
	if changed {
		log.Log.WithName("workload").Info("the state of a workload cluster has changed",
			"cluster", c.name.String(), "phase", next.Phase, "reason", next.Reason)
		c.options.Changed(c.name)
	}
}

// run keeps the cluster connected until the context ends or the cluster is forgotten.
func (c *Cluster) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	config, err := c.access.tlsConfig()
	if err != nil {
		_ = c.fail(ctx, err) // there is nothing to try until the cluster is replaced
		return
	}
	pauses := newPauses()
	for ctx.Err() == nil {
		connected, err := c.attempt(ctx, config)
		if connected {
			pauses = newPauses()
		}
		c.rest(ctx, &pauses, errors.Is(err, errNoAddress))
	}
}

// attempt connects, and stays connected until the connection is lost. While the API server reports that it is not
// ready, it gets no other requests. The error says why the attempt failed or what ended the connection.
func (c *Cluster) attempt(ctx context.Context, config *tls.Config) (connected bool, err error) {
	if len(c.addresses.order()) == 0 {
		return false, c.fail(ctx, errNoAddress)
	}
	l := newLink(c.addresses, config, c.options.Scheme, c.allowance, c.intake)
	defer l.close()
	if err := l.probe(ctx); err != nil {
		if classify(err) == NotReady {
			c.addresses.distrust(err) // that of another master may be ready
		}
		return false, c.fail(ctx, err)
	}
	s, err := newSession(ctx, l, c.options, c.changed)
	if err != nil {
		return false, c.fail(ctx, err)
	}
	defer s.close()
	if err := s.fill(ctx); err != nil {
		return false, c.fail(ctx, err)
	}
	c.setState(State{Phase: Connected}, s)
	return true, c.fail(ctx, s.keep(ctx))
}

// fail publishes why there is no connection, unless the context has ended.
func (c *Cluster) fail(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		log.Log.WithName("workload").V(1).Info("cannot reach a workload cluster", "cluster", c.name.String(), "cause", err.Error())
		c.setState(unreachable(err, c.access.ServerName), nil)
	}
	return err
}

// rest waits before the next attempt. Without an address there is nothing to try until one is set.
func (c *Cluster) rest(ctx context.Context, pauses *wait.Backoff, untilWoken bool) {
	var over <-chan time.Time
	if !untilWoken {
		timer := c.options.Clock.NewTimer(pauses.Step())
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-over:
	case <-c.wake:
		*pauses = newPauses()
	}
}

// newPauses returns the pauses between attempts: they double, from half a second to ten. A fifth of each is random, so
// that clusters that were lost together do not reconnect in lockstep.
func newPauses() wait.Backoff {
	return wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 0.25, Steps: math.MaxInt, Cap: 8 * time.Second}
}

// changed notifies of a changed object if the cluster is connected; before that, nothing can be read.
func (c *Cluster) changed() {
	if c.current() != nil {
		c.options.Changed(c.name)
	}
}
