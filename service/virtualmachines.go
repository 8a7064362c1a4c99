package service

import (
	"context"
	"errors"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine/links"
	"github.com/kvm-operator/kvm-operator/service/controller/report"
	"github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// definitionLook is how often the service checks, without a request, whether VirtualMachines are defined.
const definitionLook = time.Second

// addVirtualMachines adds the controller of VirtualMachines as soon as their definition exists. Clusters do not wait for
// it, because an upgrade of the chart does not apply new definitions. The controller has its own cache,
// because its objects have the labels of VM-Operator, and it follows none that belong to clusters.
func (s *Service) addVirtualMachines(c Config) error {
	if c.VirtualMachines == nil {
		return nil
	}
	return microerror.Mask(s.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for !s.definitions.Exists(ctx, definitionVirtualMachines) || s.definitions.Outdated(ctx, definitionVirtualMachines) != "" {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(definitionLook):
			}
		}
		return s.startVirtualMachines(ctx, c)
	})))
}

func (s *Service) startVirtualMachines(ctx context.Context, c Config) error {
	m := s.manager
	mapper, err := mapperOf(virtualmachine.AllKinds())
	if err != nil {
		return err
	}
	informers, err := undecodable.Informers(m.GetConfig(), m.GetHTTPClient(), m.GetScheme(), undecodable.Kind{
		Object: &vmoperatorv1.VirtualMachine{}, List: &vmoperatorv1.VirtualMachineList{}, Resource: vmoperatorv1.GroupVersion.WithResource("vms"),
	})
	if err != nil {
		return err
	}
	cached, err := cache.New(m.GetConfig(), cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper, ByObject: virtualmachine.Objects(),
		DefaultTransform: virtualmachine.Trim, NewInformer: informers, DefaultWatchErrorHandler: s.life.Note,
	})
	if err != nil {
		return microerror.Mask(err)
	}
	if err := virtualmachine.SetupIndexes(ctx, cached); err != nil {
		return err
	}
	writer, err := client.New(m.GetConfig(), client.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper,
		Cache: &client.CacheOptions{Reader: cached, EnableReadYourWritesConsistency: ptr.To(true)},
	})
	if err != nil {
		return microerror.Mask(err)
	}
	live, err := client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper})
	if err != nil {
		return microerror.Mask(err)
	}
	writer = patience.New(writer, patience.Limit)
	if c.WrapClient != nil {
		writer = c.WrapClient(writer)
	}
	r := &virtualmachine.Reconciler{
		Client: writer, Live: live, Settings: *c.VirtualMachines, Clock: s.clock, Events: m.GetEventRecorder("kvm-operator"),
		Outdated: func(ctx context.Context) string { return s.definitions.Outdated(ctx, definitionVirtualMachines) },
	}
	if r.Links, err = s.newLinks(c, r.Wake); err != nil {
		return err
	}
	if err := r.Init(); err != nil {
		return err
	}
	if err := errors.Join(m.Add(definitions.Cache{Cache: cached}), m.Add(r.Links)); err != nil {
		return microerror.Mask(err)
	}
	if err := r.SetupWithManager(m, cached); err != nil {
		return err
	}
	u := report.VirtualMachines()
	u.Client, u.Live, u.Clock, u.Events, u.Cache, u.CacheSyncTimeout = writer, live, c.Clock, m.GetEventRecorder("kvm-operator"), cached, virtualmachine.NoTimeout
	return u.SetupWithManager(m)
}

// newLinks returns the links with runners.
func (s *Service) newLinks(c Config, wake func(types.NamespacedName)) (*links.Links, error) {
	if c.Link != nil {
		return links.New(c.Link, wake, s.fence.Check), nil
	}
	dial, err := linker(s.manager.GetConfig())
	return links.New(dial, wake, s.fence.Check), err
}
