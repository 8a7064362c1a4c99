package machines

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apiclock"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/lifecycle"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/controller/machine"
	"github.com/kvm-operator/kvm-operator/service/controller/networkconfiguration"
)

// Config configures the operator for Machines. Its servers are another matter, see Serving.
type Config struct {
	// REST is the connection to the API server.
	REST *rest.Config
	// Settings are the settings for Machines.
	Settings vitistack.Settings
	// Interval is how often each Machine is reconciled without an event; 0 means 30 seconds. Workers is how many are at a
	// time; 0 means 5.
	Interval time.Duration
	Workers  int
	// Election makes one of several replicas work; with the zero value every replica works.
	Election election.Config
	// Logger is the logger of the controllers; the zero value means controller-runtime's.
	Logger logr.Logger
	// Clock is the clock with which the API server's time is measured; nil means the machine's clock.
	Clock clock.PassiveClock
	// WrapClient, if set, wraps the clients of the controllers; tests inject faults with it.
	WrapClient func(client.Client) client.Client
}

const (
	defaultInterval = 30 * time.Second
	defaultWorkers  = 5
	// shutdownTimeout is how long passes in progress may take to end.
	shutdownTimeout = 20 * time.Second
	// unlimited disables client-side rate limits: each controller has only a few requests in flight, and the API server's
	// priority and fairness knows better than a fixed rate how much load it can take.
	unlimited = -1
	// eventSource is the name in events.
	eventSource = "kubevirt-operator"
)

// Names of the definitions of the operator's own kinds.
var (
	definitionMachines = "machines." + v1alpha1.GroupVersion.Group
	definitionNetworks = "networkconfigurations." + v1alpha1.GroupVersion.Group
	definitionClasses  = "machineclasses." + v1alpha1.GroupVersion.Group
)

// ownKinds are the operator's kinds, by the names of their definitions. MachineClasses are only read, and fields of theirs
// that an older definition lacks are not needed.
var ownKinds = map[string]definitions.Kind{
	definitionMachines: {Version: "v1alpha1", Type: reflect.TypeFor[v1alpha1.Machine]()},
	definitionNetworks: {Version: "v1alpha1", Type: reflect.TypeFor[v1alpha1.NetworkConfiguration]()},
}

// controllers process Machines in the order in which they were queued. With priorities, those that exist when the operator
// starts would wait as long as others change.
var controllers = config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)}

// Service is the operator ready to run.
type Service struct {
	manager manager.Manager
	// clock is the API server's time.
	clock *apiclock.Clock
	// lock is the Lease, and fence is checked before every write; both are nil without leader election.
	lock        *election.Lock
	fence       *fence.Fence
	life        *lifecycle.Lifecycle
	definitions *definitions.Definitions
	sessions    sessions
	metrics     *machine.Metrics
}

// New builds the operator. It sends no request to the API server.
func New(ctx context.Context, c Config) (*Service, error) {
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	connection := rest.CopyConfig(c.REST)
	connection.QPS, connection.UserAgent = unlimited, rest.DefaultKubernetesUserAgent()
	s := &Service{clock: apiclock.New(c.Clock), life: lifecycle.New()}
	connection.Wrap(s.clock.Transport)
	options, err := s.managerOptions(c)
	if err != nil {
		return nil, err
	}
	if s.lock, err = c.Election.Elect(connection, project.Version(), &options); err != nil {
		return nil, err
	}
	if s.lock != nil {
		s.fence = s.lock.Fence
	}
	// The Lease is renewed without the fence, because a renewal opens the fence.
	connection.Wrap(s.fence.Transport)
	if s.manager, err = ctrl.NewManager(connection, options); err != nil {
		return nil, microerror.Mask(err)
	}
	s.lock.Announce(s.manager.GetEventRecorder(eventSource))
	return s, s.add(ctx, c)
}

func (s *Service) managerOptions(c Config) (ctrl.Options, error) {
	scheme, err := NewScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	return ctrl.Options{
		Scheme: scheme, Logger: c.Logger, MapperProvider: NewMapper,
		Cache:  cache.Options{ByObject: machine.Objects(), DefaultTransform: machine.Trim, DefaultWatchErrorHandler: s.life.Note},
		Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		// The servers are the caller's.
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		GracefulShutdownTimeout: ptr.To(shutdownTimeout), Controller: controllers,
	}, nil
}

// add adds caches, sessions and controllers to the manager.
func (s *Service) add(ctx context.Context, c Config) error {
	m := s.manager
	s.definitions = &definitions.Definitions{Events: m.GetEventRecorder(eventSource), Kinds: ownKinds, Origin: "vitistack/common"}
	writer := s.wrapped(c)(patience.New(m.GetClient(), patience.Limit))
	s.metrics = machine.NewMetrics(machine.Sources{
		Machines: machine.CountMachines(m.GetCache()), VirtualMachines: machine.CountVirtualMachines(s.virtualMachines), Leads: s.leads,
	})
	machines := &machine.Reconciler{
		Client: writer, Live: m.GetAPIReader(), Settings: c.Settings, Interval: c.Interval, Workers: c.Workers, Metrics: s.metrics,
		Clock: s.clock, Events: m.GetEventRecorder(eventSource), Outdated: s.outdated,
	}
	networks := &networkconfiguration.Reconciler{Machines: writer, Settings: c.Settings, Interval: c.Interval, Clock: s.clock, Outdated: s.outdated}
	s.sessions = s.newSessions(c, func() { machines.Wake(); networks.Wake() })
	machines.Sessions = machine.Sessions{KubeVirt: s.sessions.kubeVirt, CDI: s.sessions.cdi, Networks: s.sessions.networks, Classes: s.sessions.classes}
	networks.Networks, networks.Multus = s.sessions.networks, s.sessions.multus
	metadata, err := s.addMetadata()
	if err != nil {
		return err
	}
	machines.References = metadata
	if err := errors.Join(machine.SetupIndexes(ctx, m.GetFieldIndexer(), c.Settings), machines.Init(), networks.Init()); err != nil {
		return err
	}
	if err := s.definitions.AddTo(ctx, m, s.life.Note, s.sessions.definitions()...); err != nil {
		return err
	}
	if err := s.observeClaims(ctx); err != nil {
		return err
	}
	for _, runnable := range append(s.sessions.all(), s.life) {
		if err := m.Add(runnable); err != nil {
			return microerror.Mask(err)
		}
	}
	return errors.Join(machines.SetupWithManager(m, m.GetCache(), metadata), networks.SetupWithManager(m, m.GetCache()))
}

// wrapped returns what wraps clients.
func (s *Service) wrapped(c Config) func(client.Client) client.Client {
	if c.WrapClient != nil {
		return c.WrapClient
	}
	return func(unchanged client.Client) client.Client { return unchanged }
}

// Run runs the operator until the context ends. It fails if another replica has taken the lead.
func (s *Service) Run(ctx context.Context) error { return s.life.Run(ctx, s.manager, s.lock) }

// Ready returns whether the operator is ready to work, or to take the lead, and what keeps it from that, or which replica
// leads. It sends no request. KubeVirt need not be installed.
func (s *Service) Ready() (ready bool, why string) {
	if why := s.life.Unfilled(); why != "" {
		return false, why
	}
	if why := s.outdated(context.Background()); why != "" {
		return false, why
	}
	if s.lock == nil {
		return true, "there is no leader election"
	}
	return true, s.lock.Leader()
}

// Metrics are the metrics of this operator, for one registry.
func (s *Service) Metrics() *machine.Metrics { return s.metrics }

// outdated returns what is wrong with the definitions of the operator's kinds.
func (s *Service) outdated(ctx context.Context) string {
	return s.definitions.Outdated(ctx, definitionMachines, definitionNetworks)
}

// leads returns whether this replica is the leader.
func (s *Service) leads() bool { return s.fence.Check() == nil }

// virtualMachines returns the cache of VirtualMachines, nil while there is none.
func (s *Service) virtualMachines() client.Reader { return s.sessions.kubeVirt.View().Reader }
