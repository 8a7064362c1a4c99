package smolvmruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// NewClient returns a client of the API server for the kinds that an agent reads and writes. It reads nothing that is
// not asked for.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	// The kinds are known, so the API server need not be asked for them.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("SmolVM"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("SmolVMNode"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	made, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return made, nil
}

// Agent is the agent of a node.
type Agent struct {
	settings *Settings
	log      *slog.Logger
	now      func() time.Time
	// look is the time between two checks of smolvm, and sweep between two searches for orphans.
	look, sweep time.Duration

	client     client.Client
	socket     socket
	smolvm     *api.Client
	supervisor *supervisor
	identity   *identity
	api        *nodeAPI
	meters     *meters
	watcher    *watcher
	sweeper    *sweeper

	// ownerMu guards owner, which is checked while the agent runs and when it ends.
	ownerMu sync.Mutex
	owner   *owner
}

// lookInterval is the time between two checks of smolvm.
const lookInterval = 5 * time.Second

// New returns an agent with valid settings. What smolvm writes goes to output.
func New(s Settings, c client.Client, output io.Writer, log *slog.Logger) (*Agent, error) {
	a := &Agent{
		settings: &s, log: log, now: time.Now, look: lookInterval, sweep: sweepInterval, client: c, meters: newMeters(),
		owner: &owner{client: c, namespace: s.PodNamespace, name: s.DaemonSet},
	}
	a.supervisor = newSupervisor(s.Command, output, log)
	a.supervisor.started = a.meters.starts.Inc
	a.socket.path = s.Socket
	if len(s.Command) > 0 {
		a.socket.child = a.supervisor.Child
	}
	var err error
	if a.smolvm, err = api.NewClient("unix://"+s.Socket, api.Options{HTTP: &http.Client{Transport: a.socket.transport()}}); err != nil {
		return nil, err
	}
	if a.identity, err = newIdentity(&s, log, a.now()); err != nil {
		return nil, err
	}
	a.sweeper = &sweeper{
		client: c, smolvm: a.smolvm, node: s.Node, policy: s.Orphans, log: log,
		found: a.meters.strays, deleted: a.meters.deleted.Inc,
	}
	a.api = &nodeAPI{auth: a.authenticator(), guests: s.ExposeGuestStreams, log: log, count: a.meters.request, complaints: rate.Sometimes{Interval: time.Second}}
	return a, nil
}

func (a *Agent) authenticator() authenticator {
	s := a.settings
	if s.InsecureNoAuth {
		a.log.Warn("Every client may do everything with the machines of this node: --insecure-no-auth is set")
		return everyone{}
	}
	var all authenticators
	if s.Token != "" {
		all = append(all, fixedToken(s.Token))
	}
	if s.TokenFile != "" {
		all = append(all, tokenFile(s.TokenFile))
	}
	if user, err := userOf(s.Controller); err == nil {
		all = append(all, newReviewer(a.client, user, s.Audience, a.now))
	}
	return all
}

// Run runs the agent until the context ends, which stands for SIGTERM. Before it returns, it decides whether the
// machines keep running, and ends smolvm. The error says why it could not run on.
func (a *Agent) Run(ctx context.Context) error {
	// The parts run until the end of the machines is decided: a drain needs smolvm.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	listener, metrics, err := a.listen(ctx)
	if err != nil {
		return err
	}
	port, err := portOf(listener.Addr().String())
	if err != nil {
		return err
	}
	a.watcher = newWatcher(a, port)
	a.api.proxy = newProxy(parts, a.socket, a.log)
	group, parts := errgroup.WithContext(parts)
	group.Go(func() error {
		return serve(parts, newCrowd(listener, maxConnections, maxPerSource), a.api, secure(a.identity), a.log)
	})
	if metrics != nil {
		group.Go(func() error { return serve(parts, metrics, a.meters.handler(), nil, a.log) })
	}
	group.Go(func() error { a.supervisor.Run(parts); return nil })
	group.Go(func() error { every(parts, a.look, a.watcher.Look); return nil })
	group.Go(func() error { every(parts, a.sweep, a.sweepOnce); return nil })
	a.log.Info("The runtime agent runs", "node", a.settings.Node, "address", listener.Addr())
	select {
	case <-ctx.Done():
		a.end(context.WithoutCancel(ctx))
	case <-parts.Done():
	}
	stop()
	return group.Wait()
}

// listen opens the node API's address and that of the metrics.
func (a *Agent) listen(ctx context.Context) (listener, metrics net.Listener, err error) {
	var config net.ListenConfig
	if listener, err = config.Listen(ctx, "tcp", a.settings.BindAddress); err != nil {
		return nil, nil, fmt.Errorf("listening for the node API: %w", err)
	}
	if a.settings.MetricsAddress == "" {
		return listener, nil, nil
	}
	if metrics, err = config.Listen(ctx, "tcp", a.settings.MetricsAddress); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listening for metrics: %w", err), listener.Close())
	}
	return listener, metrics, nil
}

// every calls a function at once, and repeats that until the context ends.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		do(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (a *Agent) sweepOnce(ctx context.Context) {
	if err := a.sweeper.Sweep(ctx, a.now()); err != nil && ctx.Err() == nil {
		a.log.Warn("Cannot find out which machines belong to no SmolVM", "error", err)
	}
}

// lookAtOwner remembers the DaemonSet.
func (a *Agent) lookAtOwner(ctx context.Context) error {
	a.ownerMu.Lock()
	defer a.ownerMu.Unlock()
	return a.owner.Look(ctx)
}

// end decides whether the machines keep running, and powers them down if nothing will look after them.
func (a *Agent) end(ctx context.Context) {
	a.ownerMu.Lock()
	seen, err := a.owner.AtEnd(ctx)
	a.ownerMu.Unlock()
	if err != nil {
		a.log.Warn("Cannot find out whether the runtime is being removed", "error", err)
	}
	what, why := decideEnd(seen)
	a.log.Info("The runtime agent ends", "machines", what, "reason", why)
	if what == machinesStay {
		return
	}
	a.api.draining.Store(true)
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	if err := a.smolvm.Drain(ctx); err != nil {
		a.log.Error("Cannot power the machines down", "error", err)
	}
}
