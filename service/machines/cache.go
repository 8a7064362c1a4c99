package machines

import (
	"context"
	"net/http"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/late"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/controller/machine"
)

// NewScheme returns a scheme with every kind that the operator for Machines reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apiextensionsv1.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme, multusv1.AddToScheme, kubevirt.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, microerror.Mask(err)
		}
	}
	return scheme, nil
}

// resources are the kinds in use, with the names that URLs have.
var resources = []struct {
	kind             schema.GroupVersionKind
	plural, singular string
	scope            meta.RESTScope
}{
	{v1alpha1.GroupVersion.WithKind("Machine"), "machines", "machine", meta.RESTScopeNamespace},
	{v1alpha1.GroupVersion.WithKind("NetworkConfiguration"), "networkconfigurations", "networkconfiguration", meta.RESTScopeNamespace},
	{v1alpha1.GroupVersion.WithKind("MachineClass"), "machineclasses", "machineclass", meta.RESTScopeRoot},
	{kubevirtv1.VirtualMachineGroupVersionKind, "virtualmachines", "virtualmachine", meta.RESTScopeNamespace},
	{kubevirtv1.VirtualMachineInstanceGroupVersionKind, "virtualmachineinstances", "virtualmachineinstance", meta.RESTScopeNamespace},
	{cdiv1.SchemeGroupVersion.WithKind("DataVolume"), "datavolumes", "datavolume", meta.RESTScopeNamespace},
	{multusv1.GroupVersion.WithKind("NetworkAttachmentDefinition"), multusv1.Resource, "network-attachment-definition", meta.RESTScopeNamespace},
	{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "persistentvolumeclaims", "persistentvolumeclaim", meta.RESTScopeNamespace},
	{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", "secret", meta.RESTScopeNamespace},
	{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", "configmap", meta.RESTScopeNamespace},
	{storagev1.SchemeGroupVersion.WithKind("StorageClass"), "storageclasses", "storageclass", meta.RESTScopeRoot},
	{apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "customresourcedefinitions", "customresourcedefinition", meta.RESTScopeRoot},
}

// NewMapper returns a mapper with a fixed list of the resources in use, so that the operator never needs discovery: it
// does not depend on the health of other API groups and starts without a request.
func NewMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, r := range resources {
		version := r.kind.GroupVersion()
		mapper.AddSpecific(r.kind, version.WithResource(r.plural), version.WithResource(r.singular), r.scope)
	}
	return mapper, nil
}

// addMetadata adds the cache of what Machines refer to. It is apart from that of Machines, which has Secrets as a whole.
func (s *Service) addMetadata() (cache.Cache, error) {
	m := s.manager
	c, err := cache.New(m.GetConfig(), cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		DefaultTransform: machine.Trim, DefaultWatchErrorHandler: s.life.Note,
	})
	if err != nil {
		return nil, microerror.Mask(err)
	}
	return c, microerror.Mask(m.Add(definitions.Cache{Cache: c}))
}

// observeClaims has the metrics follow claims.
func (s *Service) observeClaims(ctx context.Context) error {
	informer, err := s.manager.GetCache().GetInformer(ctx, &corev1.PersistentVolumeClaim{}, cache.BlockUntilSynced(false))
	if err != nil {
		return microerror.Mask(err)
	}
	_, err = informer.AddEventHandler(s.metrics.Claims(s.clock.Now))
	return microerror.Mask(err)
}

// sessions are the kinds that may be missing.
type sessions struct{ kubeVirt, cdi, multus, networks, classes *late.Session }

// definitions returns the names of all definitions that the operator follows.
func (sessions) definitions() []string {
	return []string{
		definitionMachines, definitionNetworks, definitionClasses,
		kubevirt.DefinitionVirtualMachines, kubevirt.DefinitionVirtualMachineInstances, kubevirt.DefinitionDataVolumes,
		multusv1.Definition,
	}
}

func (s sessions) all() []manager.Runnable {
	return []manager.Runnable{s.kubeVirt, s.cdi, s.multus, s.networks, s.classes}
}

// newSessions returns the sessions. changed is called when one begins or ends.
func (s *Service) newSessions(c Config, changed func()) sessions {
	m := s.manager
	begin := func(name string, kinds []client.Object, definitions ...string) late.Options {
		return late.Options{
			Name: name, Definitions: s.definitions, Names: definitions, Kinds: kinds, Trim: machine.Trim,
			REST: m.GetConfig(), HTTP: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), Clock: s.clock,
			Adopts: vitistack.Adopts, Wrap: c.WrapClient, Changed: changed, Logger: m.GetLogger(),
		}
	}
	networks := begin("networks", []client.Object{&v1alpha1.NetworkConfiguration{}}, definitionNetworks)
	networks.Indexes = []late.Index{{Kind: &v1alpha1.NetworkConfiguration{}, Name: machine.IndexAttached, Values: machine.Attached}}
	imports := begin("cdi", []client.Object{&cdiv1.DataVolume{}}, kubevirt.DefinitionDataVolumes)
	imports.Adopts = nil // a DataVolume is never changed
	imports.Indexes = []late.Index{{Kind: &cdiv1.DataVolume{}, Name: machine.IndexMachine, Values: machine.NamesOf}}
	return sessions{
		cdi: late.New(imports),
		kubeVirt: late.New(begin("kubevirt", []client.Object{&kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{}},
			kubevirt.DefinitionVirtualMachines, kubevirt.DefinitionVirtualMachineInstances)),
		multus:   late.New(begin("multus", []client.Object{&multusv1.NetworkAttachmentDefinition{}}, multusv1.Definition)),
		networks: late.New(networks),
		classes:  late.New(begin("classes", []client.Object{&v1alpha1.MachineClass{}}, definitionClasses)),
	}
}
