// Package service is the composition root: it puts scheme, manager, caches, clients, metrics, health and controllers
// together.
package service

import (
	"context"
	"errors"
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

	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/vault"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apiclock"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/lifecycle"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine/links"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/deleter"
	"github.com/kvm-operator/kvm-operator/service/controller/drainer"
	"github.com/kvm-operator/kvm-operator/service/controller/report"
	"github.com/kvm-operator/kvm-operator/service/controller/unhealthynodeterminator"
)

// Config configures the service.
type Config struct {
	// REST is the connection to the management cluster.
	REST *rest.Config
	// Settings are the operator's settings for clusters.
	Settings state.Settings
	// Selector selects the KVMConfigs that this operator is responsible for; the empty selector selects all.
	Selector labels.Selector

	// ListenAddress and MetricsAddress are URLs; an empty one is not served. With CertFile and KeyFile the servers use
	// TLS.
	ListenAddress, MetricsAddress string
	CertFile, KeyFile             string
	LogAccess, Debug              bool

	// Election makes one of several replicas work; with the zero value every replica works.
	Election Election

	// MachinesOnly makes the operator ignore the workload clusters: it does not connect to them or install add-ons, and
	// a node is Ready when its pod is.
	MachinesOnly bool

	// Addresses returns the addresses of a workload cluster's API; nil means its Service and its masters. Tests set
	// their own.
	Addresses func(s *state.Cluster, serviceIP string) []string
	// EtcdAddresses returns the addresses (host:port) of the members of a cluster's etcd by their node pods, and nil
	// for a cluster whose etcd is ignored. It is used only if Addresses is set.
	EtcdAddresses func(s *state.Cluster) func(pod *corev1.Pod) string

	// VirtualMachines are the settings for VirtualMachines; nil ignores them.
	VirtualMachines *virtualmachine.Settings
	// SmolVMs are the settings for SmolVMs; nil ignores them.
	SmolVMs *SmolVMs
	// NoClusters makes the operator ignore KVMConfigs and everything of clusters.
	NoClusters bool

	// DrainTimeout is how long the operator waits for the pods of a node before it shuts its machine down, unless the
	// KVMConfig sets a timeout; 0 means without a limit.
	DrainTimeout time.Duration

	// Vault issues the certificates of new clusters; nil means CAs whose keys are in Secrets.
	Vault *vault.Config

	// Release tells the runner of a node pod to shut its machine down; nil means by exec. Tests without runners set
	// their own.
	Release func(ctx context.Context, namespace, pod string) error
	// Link connects with the runner of a virtual machine; nil means by exec. Tests without runners set another.
	Link links.Dial

	// Logger is the logger of the controllers; the zero value means controller-runtime's.
	Logger logr.Logger

	// Clock is the clock with which the API server's time is measured; nil means the machine's clock. Tests set clocks
	// with a skew.
	Clock clock.PassiveClock

	// WrapClient, if set, wraps the client of the controllers; tests inject faults with it.
	WrapClient func(client.Client) client.Client
}

// unlimited disables client-side rate limits: each controller has only a few requests in flight, and the API server's
// priority and fairness knows better than a fixed rate how much load it can take.
const unlimited = -1

// shutdownTimeout is how long reconciles in progress may take to end.
const shutdownTimeout = 20 * time.Second

// controllers process clusters and pods in the order in which they were queued. With priorities, objects that exist
// when the operator starts would wait as long as others change: a node pod of a quiet cluster forever.
var controllers = config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)}

// Service is the operator ready to run.
type Service struct {
	manager manager.Manager
	rest    *rest.Config
	// clock is the API server's time.
	clock *apiclock.Clock
	// lock is the Lease, and fence is checked before every write; both are nil without leader election.
	lock  *election.Lock
	fence *fence.Fence
	life  *lifecycle.Lifecycle
	// definitions know whether the API server has the fields that the operator needs.
	definitions *definitions.Definitions

	servers           []*manager.Server
	certFile, keyFile string
}

// New builds the service. It sends no request to the API server.
func New(ctx context.Context, c Config) (*Service, error) {
	restConfig := rest.CopyConfig(c.REST)
	restConfig.QPS = unlimited
	restConfig.UserAgent = rest.DefaultKubernetesUserAgent()
	// The warnings are about Endpoints, which the operator keeps for clients that still read them.
	restConfig.WarningHandlerWithContext = rest.NoWarnings{}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	remote := apiclock.New(c.Clock)
	restConfig.Wrap(remote.Transport)
	c.Clock = remote
	s := &Service{rest: restConfig, clock: remote, life: lifecycle.New()}
	options, err := s.managerOptions(c)
	if err != nil {
		return nil, err
	}
	// The Lease is renewed without the fence, because a renewal opens the fence.
	restConfig.Wrap(s.fence.Transport)
	m, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	s.manager = m
	s.lock.Announce(m.GetEventRecorder("kvm-operator"))
	if !c.NoClusters {
		if err := cluster.SetupIndexes(ctx, m.GetFieldIndexer(), CreatedKinds()); err != nil {
			return nil, err
		}
	}
	s.definitions = &definitions.Definitions{Events: m.GetEventRecorder("kvm-operator"), Kinds: ownKinds, Origin: "giantswarm/kvm-operator"}
	if err := s.definitions.AddTo(ctx, m, s.life.Note, definitionsOf(c)...); err != nil {
		return nil, err
	}
	if err := s.addControllers(c); err != nil {
		return nil, err
	}
	if err := m.Add(s.life); err != nil {
		return nil, microerror.Mask(err)
	}
	return s, s.addServers(c)
}

// managerOptions returns the options of the manager. The connection is complete except for the fence.
func (s *Service) managerOptions(c Config) (ctrl.Options, error) {
	scheme, err := NewScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	caches := CacheOptions(c.Selector)
	caches.DefaultWatchErrorHandler = s.life.Note
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
	if err := errors.Join(s.addVirtualMachines(c), s.addSmolVMs(c)); err != nil || c.NoClusters {
		return err
	}
	return s.addClusters(c)
}

// addClusters adds the controllers of clusters.
func (s *Service) addClusters(c Config) error {
	m := s.manager
	var writer client.Client = patience.New(m.GetClient(), patience.Limit)
	if c.WrapClient != nil {
		writer = c.WrapClient(writer)
	}
	r := &cluster.Reconciler{
		Client: writer, Live: m.GetAPIReader(), Settings: c.Settings, NewKey: pki.NewRandomKey,
		Readiness: state.PodReadiness, Clock: s.clock, ClockDifference: s.clock.Difference,
		Events: m.GetEventRecorder("kvm-operator"), Outdated: s.outdated,
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
	if err := s.addFollowers(c, writer, r.Workloads); err != nil {
		return err
	}
	if err := addReports(m, c, writer); err != nil {
		return err
	}
	return s.addDrainer(c, writer, r.Workloads)
}

// addFollowers adds the controllers that follow the machines of clusters and the Nodes of workload clusters.
func (s *Service) addFollowers(c Config, writer client.Client, w *cluster.Workloads) error {
	m := s.manager
	f := observe.Follower{
		Client: writer, Live: m.GetAPIReader(), Settings: c.Settings, Clock: s.clock, Outdated: s.outdated,
	}
	if w != nil { // a nil pointer has to be a nil interface
		f.Workloads = w
	}
	d := &deleter.Reconciler{Follower: f}
	u := &unhealthynodeterminator.Reconciler{Follower: f, Events: m.GetEventRecorder("kvm-operator")}
	e := &drainer.Endpoints{Follower: f}
	if w != nil {
		e.Members = w.Members.State
	}
	if err := errors.Join(d.Init(), u.Init(), e.Init()); err != nil {
		return err
	}
	return errors.Join(d.SetupWithManager(m), u.SetupWithManager(m), e.SetupWithManager(m))
}

// addReports adds the controllers that report objects which cannot be decoded.
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
		Clock: c.Clock, Events: m.GetEventRecorder("kvm-operator"), Outdated: s.outdated,
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
	if err := d.Init(); err != nil {
		return err
	}
	return d.SetupWithManager(m)
}
