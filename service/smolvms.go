package service

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/service/controller/report"
	"github.com/kvm-operator/kvm-operator/service/controller/smolvm"
	"github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// SmolVMs are the settings for SmolVMs.
type SmolVMs struct {
	// TokenFile has the token that runtimes of nodes are asked with. It is read for each request.
	TokenFile string
	// CAFile has the authorities that sign the certificates of runtimes; empty to trust the certificates that SmolVMNodes
	// show.
	CAFile string
	// PullSecrets is whether the Secrets of spec.imagePullSecrets are read. Without it, the operator needs no right on Secrets.
	PullSecrets bool
	// Times are the pauses and limits of requests to runtimes; the zero value means nodes.Defaults. Tests set shorter ones.
	Times nodes.Times
}

// definitionsOfSmolVMs are the names of the definitions that the controller of SmolVMs needs.
var definitionsOfSmolVMs = []string{"smolvms." + smolvmv1alpha1.GroupVersion.Group, "smolvmnodes." + smolvmv1alpha1.GroupVersion.Group}

// addSmolVMs adds the controller of SmolVMs as soon as their definitions exist, with its own cache.
func (s *Service) addSmolVMs(c Config) error {
	if c.SmolVMs == nil {
		return nil
	}
	return microerror.Mask(s.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for !s.areDefined(ctx, definitionsOfSmolVMs...) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(definitionLook):
			}
		}
		return s.startSmolVMs(ctx, c)
	})))
}

// areDefined returns whether definitions exist and have what the operator needs.
func (s *Service) areDefined(ctx context.Context, names ...string) bool {
	for _, name := range names {
		if !s.definitions.Exists(ctx, name) {
			return false
		}
	}
	return s.definitions.Outdated(ctx, names...) == ""
}

func (s *Service) startSmolVMs(ctx context.Context, c Config) error {
	m := s.manager
	cached, writer, live, err := s.smolVMClients(c)
	if err != nil {
		return err
	}
	if err := smolvm.SetupIndexes(ctx, cached); err != nil {
		return err
	}
	recorder := m.GetEventRecorder(smolvm.EventSource)
	r := &smolvm.Reconciler{
		Client: writer, Live: live, Clock: s.clock, Events: recorder, PullSecrets: c.SmolVMs.PullSecrets,
		Outdated: func(ctx context.Context) string { return s.definitions.Outdated(ctx, definitionsOfSmolVMs...) },
	}
	r.Nodes = nodes.New(nodes.Options{
		Token: nodes.TokenFile(c.SmolVMs.TokenFile), Roots: roots(c.SmolVMs.CAFile), Wrap: s.fence.Transport,
		Changed: r.Changed, Asked: smolvm.ObserveRequest, Times: c.SmolVMs.Times,
	})
	if err := r.Init(); err != nil {
		return err
	}
	if err := errors.Join(m.Add(definitions.Cache{Cache: cached}), m.Add(r.Nodes)); err != nil {
		return microerror.Mask(err)
	}
	if err := r.SetupWithManager(m, cached); err != nil {
		return err
	}
	u := report.SmolVMs()
	u.Client, u.Live, u.Clock, u.Events, u.Cache, u.CacheSyncTimeout = writer, live, c.Clock, recorder, cached, virtualmachine.NoTimeout
	return u.SetupWithManager(m)
}

// smolVMClients returns the cache of the controller, a client that reads from it and one that does not.
func (s *Service) smolVMClients(c Config) (cached cache.Cache, writer, live client.Client, err error) {
	m := s.manager
	mapper, err := mapperOf(smolvm.AllKinds())
	if err != nil {
		return nil, nil, nil, err
	}
	informers, err := undecodable.Informers(m.GetConfig(), m.GetHTTPClient(), m.GetScheme(), undecodable.Kind{
		Object: &smolvmv1alpha1.SmolVM{}, List: &smolvmv1alpha1.SmolVMList{}, Resource: smolvmv1alpha1.GroupVersion.WithResource("smolvms"),
	})
	if err != nil {
		return nil, nil, nil, err
	}
	cached, err = cache.New(m.GetConfig(), cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper,
		DefaultTransform: smolvm.Trim, NewInformer: informers, DefaultWatchErrorHandler: s.life.Note,
	})
	if err != nil {
		return nil, nil, nil, microerror.Mask(err)
	}
	writer, err = client.New(m.GetConfig(), client.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper,
		Cache: &client.CacheOptions{Reader: cached, DisableFor: []client.Object{&corev1.Namespace{}}, EnableReadYourWritesConsistency: ptr.To(true)},
	})
	if err != nil {
		return nil, nil, nil, microerror.Mask(err)
	}
	live, err = client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper})
	if err != nil {
		return nil, nil, nil, microerror.Mask(err)
	}
	writer = patience.New(writer, patience.Limit)
	if c.WrapClient != nil {
		writer = c.WrapClient(writer)
	}
	return cached, writer, live, nil
}

// roots returns the authorities of runtimes; nil for none.
func roots(file string) func() (*x509.CertPool, error) {
	if file == "" {
		return nil
	}
	return nodes.RootsFile(file)
}
