// Package service is the composition root: it puts scheme, manager, caches, clients, metrics, health and controllers
// together.
package service

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kvm-operator/kvm-operator/pkg/apiclock"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/election"
	"github.com/kvm-operator/kvm-operator/pkg/fence"
	"github.com/kvm-operator/kvm-operator/pkg/patience"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/pkg/vault"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/drainer"
	"github.com/kvm-operator/kvm-operator/service/controller/report"
)

// Config is what the service needs to know.
type Config struct {
	// REST is how the management cluster is reached.
	REST *rest.Config
	// Settings shape clusters.
	Settings snapshot.Settings
	// Selector picks the KVMConfigs that this operator is responsible for; the empty one picks all.
	Selector labels.Selector

	// ListenAddress and MetricsAddress are URLs; an empty one is not served. CertFile and KeyFile make the server speak TLS.
	ListenAddress, MetricsAddress string
	CertFile, KeyFile             string
	LogAccess, Debug              bool

	// Election lets one of several replicas be at work; the zero value lets every one.
	Election Election

	// MachinesOnly leaves the workload clusters alone: no connection, no add-ons, and a node is Ready when its pod is.
	MachinesOnly bool

	// Addresses is where the API of a workload cluster answers; nil means its Service and its masters. Tests put theirs there.
	Addresses func(s *snapshot.Snapshot, serviceIP string) []string
	// EtcdAddresses is where the members of a cluster's etcd answer, host:port, by their node pods; nil for a cluster whose etcd is left
	// alone. It counts with Addresses only.
	EtcdAddresses func(s *snapshot.Snapshot) func(pod *corev1.Pod) string

	// DrainTimeout is how long the pods of a node are waited for before its machine is powered down, where the KVMConfig does not
	// say; zero: for ever.
	DrainTimeout time.Duration

	// Vault issues the certificates of new clusters; nil for authorities whose keys stand in Secrets.
	Vault *vault.Config

	// Release tells the runner of a node pod to power its machine down; nil means by exec. Tests without runners put theirs
	// there.
	Release func(ctx context.Context, namespace, pod string) error

	// Logger gets what the controllers do; the zero value is controller-runtime's.
	Logger logr.Logger

	// Clock is what the API server's time is measured with; nil means the machine's clock. Tests put wrong ones there.
	Clock clock.PassiveClock

	// WrapClient, if set, stands between the controllers and the client; tests put faults there.
	WrapClient func(client.Client) client.Client
}

// unlimited: each controller has a handful of requests in flight at most, and the API server's own fairness queues know
// better than a fixed rate what it can bear.
const unlimited = -1

// shutdownTimeout is how long reconciles in flight may take to end.
const shutdownTimeout = 20 * time.Second

// controllers take clusters and pods first come, first served. With priorities, what is there when the operator begins waits as long as
// others change: a node pod of a quiet cluster for ever.
var controllers = config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)}

// Service is the operator ready to run.
type Service struct {
	manager manager.Manager
	rest    *rest.Config
	// clock tells the API server's time.
	clock *apiclock.Clock
	// lock is the Lease, and fence what stands before all writes; nil without election.
	lock  *election.Lock
	fence *fence.Fence
	// filled is closed once the caches are filled, and obstacles are what is in the way until then.
	filled    chan struct{}
	obstacles *obstacles
	// definitions say whether the API server knows the fields that the operator needs.
	definitions *definitions

	servers           []*manager.Server
	certFile, keyFile string
}

// New builds the service. It asks the API server nothing.
func New(ctx context.Context, c Config) (*Service, error) {
	restConfig := rest.CopyConfig(c.REST)
	restConfig.QPS = unlimited
	restConfig.UserAgent = rest.DefaultKubernetesUserAgent()
	// They are about Endpoints, which are kept for those who still read them.
	restConfig.WarningHandlerWithContext = rest.NoWarnings{}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	remote := apiclock.New(c.Clock)
	restConfig.Wrap(remote.Transport)
	c.Clock = remote
	s := &Service{rest: restConfig, clock: remote, filled: make(chan struct{}), obstacles: &obstacles{}}
	options, err := s.managerOptions(c)
	if err != nil {
		return nil, err
	}
	// The Lease is renewed without the fence, which a renewal opens.
	restConfig.Wrap(s.fence.Transport)
	m, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	s.manager = m
	s.announce(m)
	if err := cluster.SetupIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return nil, err
	}
	s.definitions = &definitions{events: m.GetEventRecorder("kvm-operator")}
	if err := s.definitions.addTo(ctx, m, s.obstacles.note); err != nil {
		return nil, err
	}
	if err := s.addControllers(c); err != nil {
		return nil, err
	}
	if err := m.Add(closer(s.filled)); err != nil {
		return nil, microerror.Mask(err)
	}
	return s, s.addServers(c)
}

// managerOptions are those of the manager, whose connection is complete but for the fence.
func (s *Service) managerOptions(c Config) (ctrl.Options, error) {
	scheme, err := NewScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	caches := CacheOptions(c.Selector)
	caches.DefaultWatchErrorHandler = s.obstacles.note
	options := ctrl.Options{
		Scheme:                  scheme,
		Logger:                  c.Logger,
		MapperProvider:          NewMapper,
		Cache:                   caches,
		NewCache:                NewCache(c.Selector),
		Client:                  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: ptr.To(shutdownTimeout),
		Controller:              controllers,
	}
	return options, s.elect(c.Election, &options)
}

func (s *Service) addControllers(c Config) error {
	m := s.manager
	var writer client.Client = patience.New(m.GetClient(), patience.Limit)
	if c.WrapClient != nil {
		writer = c.WrapClient(writer)
	}
	r := &cluster.Reconciler{
		Client: writer, Live: m.GetAPIReader(), Settings: c.Settings, NewKey: pki.NewRandomKey,
		Readiness: snapshot.PodReadiness, Clock: s.clock, ClockDifference: s.clock.Difference,
		Events: m.GetEventRecorder("kvm-operator"), Outdated: s.definitions.outdated,
	}
	if err := s.addIssuers(r, c); err != nil {
		return err
	}
	if !c.MachinesOnly {
		mapper, err := mapperOf(cluster.WorkloadKinds())
		if err != nil {
			return err
		}
		r.Workloads = cluster.NewWorkloads(m.GetScheme(), mapper, s.fence)
		if c.Addresses != nil {
			r.Workloads.Addresses, r.Workloads.EtcdAddresses = c.Addresses, c.EtcdAddresses
		}
		if r.Console, err = consoles(m.GetConfig()); err != nil {
			return err
		}
	}
	if err := r.Init(); err != nil {
		return err
	}
	if err := r.SetupWithManager(m); err != nil {
		return err
	}
	if err := addReports(m, c, writer); err != nil {
		return err
	}
	return s.addDrainer(c, writer, r.Workloads)
}

// addReports says of objects that cannot be decoded what is wrong with them.
func addReports(m manager.Manager, c Config, writer client.Client) error {
	for _, r := range []*report.Undecodable{report.KVMConfigs(), report.Releases()} {
		r.Client, r.Live, r.Clock, r.Events = writer, m.GetAPIReader(), c.Clock, m.GetEventRecorder("kvm-operator")
		if err := r.SetupWithManager(m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) addIssuers(r *cluster.Reconciler, c Config) error {
	issuers := pki.Issuers{Embedded: pki.Embedded{Clock: c.Clock}}
	if c.Vault != nil {
		v, err := vault.New(*c.Vault, c.Clock, s.fence)
		if err != nil {
			return err
		}
		issuers.Vault, r.Vault = v, v
	}
	r.Issuer = issuers
	return nil
}

func (s *Service) addDrainer(c Config, writer client.Client, w *cluster.Workloads) error {
	m := s.manager
	d := &drainer.Reconciler{
		Client: writer, Live: m.GetAPIReader(), Release: c.Release, Timeout: c.DrainTimeout,
		Clock: c.Clock, Events: m.GetEventRecorder("kvm-operator"), Outdated: s.definitions.outdated,
	}
	if w != nil {
		d.Pool, d.Etcd = w.Pool, w.Members
	}
	if d.Release == nil {
		var err error
		if d.Release, err = releases(m.GetConfig()); err != nil {
			return err
		}
	}
	d.Release = fenced(s.fence, d.Release)
	return d.SetupWithManager(m)
}
