// Package machine is the controller of Machines.
package machine

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/cloudinit"
	"github.com/kvm-operator/kvm-operator/resources/machine/dataimport"
	"github.com/kvm-operator/kvm-operator/resources/machine/storage"
	"github.com/kvm-operator/kvm-operator/resources/machine/virtualmachine"
)

// Inputs are the objects besides the Machine that a rendering depends on. Those of other namespaces are passed over.
type Inputs struct {
	Classes  []v1alpha1.MachineClass
	Networks []v1alpha1.NetworkConfiguration
	// StorageClasses are those of the cluster. If there are none, every class is assumed to exist.
	StorageClasses []storagev1.StorageClass
	Secrets        []corev1.Secret
	ConfigMaps     []corev1.ConfigMap
	// Machines may have MAC addresses that the Machine cannot have.
	Machines []v1alpha1.Machine
}

// Render returns the objects that a Machine leads to, without a cluster: claims, Secret and VirtualMachine. The error says
// what is wrong with the Machine; then there are no objects, because the operator creates none.
func Render(settings vitistack.Settings, m *v1alpha1.Machine, in Inputs) ([]apply.Rendered, error) {
	if m.UID == "" {
		m = m.DeepCopy()
		m.UID = ownership.UnstoredUID
	}
	s := vitistack.Plan(in.observed(settings, m))
	return apply.Render([]apply.Resource[*vitistack.State]{storage.New(), dataimport.Resource(), cloudinit.New(), virtualmachine.Resource()}, s)
}

func (in *Inputs) observed(settings vitistack.Settings, m *v1alpha1.Machine) vitistack.Observed {
	o := vitistack.Observed{
		Machine: m, Settings: settings, KubeVirt: vitistack.Installed, CDI: vitistack.Installed, StorageClasses: in.StorageClasses,
		Networks: map[string]*v1alpha1.NetworkConfiguration{}, Sources: map[vitistack.Source][]byte{},
	}
	for i := range in.Classes {
		if in.Classes[i].Name == m.Spec.MachineClass {
			o.Class = &in.Classes[i]
		}
	}
	for i := range in.Networks {
		if in.Networks[i].Namespace == m.Namespace {
			o.Networks[in.Networks[i].Name] = &in.Networks[i]
		}
	}
	for _, source := range vitistack.SourcesOf(m) {
		if data, found := in.value(m.Namespace, source); found {
			o.Sources[source] = data
		}
	}
	var others []v1alpha1.Machine
	for i := range in.Machines {
		if in.Machines[i].Namespace == m.Namespace && in.Machines[i].Name != m.Name {
			others = append(others, in.Machines[i])
		}
	}
	o.MACs = vitistack.TakenMACs(m, settings.MACSet, others)
	if len(o.StorageClasses) == 0 {
		o.StorageClasses = assumedClasses(m, settings)
	}
	return o
}

// value returns a value of a Secret or ConfigMap.
func (in *Inputs) value(namespace string, source vitistack.Source) (data []byte, found bool) {
	for i := range in.ConfigMaps {
		c := &in.ConfigMaps[i]
		if !source.ConfigMap || c.Namespace != namespace || c.Name != source.Name {
			continue
		}
		if text, ok := c.Data[source.Key]; ok {
			return []byte(text), true
		}
		data, found = c.BinaryData[source.Key]
	}
	for i := range in.Secrets {
		s := &in.Secrets[i]
		if source.ConfigMap || s.Namespace != namespace || s.Name != source.Name {
			continue
		}
		// stringData replaces data, as the API server has it.
		if text, ok := s.StringData[source.Key]; ok {
			return []byte(text), true
		}
		data, found = s.Data[source.Key]
	}
	return data, found
}

// assumedClasses returns the classes that a Machine names, and a default one.
func assumedClasses(m *v1alpha1.Machine, settings vitistack.Settings) []storagev1.StorageClass {
	class := func(name string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	standard := class("standard")
	standard.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	classes := []storagev1.StorageClass{standard, class(settings.StorageClass)}
	named := append([]v1alpha1.Disk{}, m.Spec.Disks...)
	named = append(named, settings.Templates[vitistack.TemplateOf(m)].Disks...)
	for i := range named {
		if name := named[i].StorageClass; name != "default" {
			classes = append(classes, class(name))
		}
	}
	return classes
}
