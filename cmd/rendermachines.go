package cmd

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kvm-operator/kvm-operator/helm"
	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
	"github.com/kvm-operator/kvm-operator/service"
	"github.com/kvm-operator/kvm-operator/service/controller/machine"
	"github.com/kvm-operator/kvm-operator/service/controller/networkconfiguration"
)

// renderScheme has all kinds that are rendered.
func renderScheme() (*runtime.Scheme, error) {
	scheme, err := service.NewScheme()
	if err != nil {
		return nil, err
	}
	return scheme, errors.Join(kubevirt.AddToScheme(scheme), multusv1.AddToScheme(scheme))
}

// machineDefinitions are those of the kinds of vitistack.io.
type machineDefinitions struct{ machine, network, class *schema.Schema }

// newMachineDefinitions parses the definitions once, when a file has one of the kinds.
var newMachineDefinitions = sync.OnceValues(func() (machineDefinitions, error) {
	m, machineErr := schema.New(helm.MachineCRD)
	network, networkErr := schema.New(helm.NetworkConfigurationCRD)
	class, classErr := schema.New(helm.MachineClassCRD)
	return machineDefinitions{m, network, class}, errors.Join(machineErr, networkErr, classErr)
})

// machineManifests holds Machines from files and the objects that they depend on, besides Secrets.
type machineManifests struct {
	machines []*v1alpha1.Machine
	inputs   machine.Inputs
}

// rendered returns how many objects lead to others.
func (m *machineManifests) rendered() int { return len(m.machines) + len(m.inputs.Networks) }

// add adds an object, and passes over other kinds.
func (m *machineManifests) add(u *unstructured.Unstructured) error {
	switch kind := u.GroupVersionKind(); {
	case kind.GroupVersion() == v1alpha1.GroupVersion:
		return m.addDeclared(u)
	case kind == storagev1.SchemeGroupVersion.WithKind("StorageClass"):
		return addTo(&m.inputs.StorageClasses, nil, u)
	case kind == corev1.SchemeGroupVersion.WithKind("ConfigMap"):
		inDefault(u)
		return addTo(&m.inputs.ConfigMaps, nil, u)
	}
	return nil
}

// addDeclared adds an object of vitistack.io.
func (m *machineManifests) addDeclared(u *unstructured.Unstructured) error {
	d, err := newMachineDefinitions()
	if err != nil {
		return err
	}
	switch u.GroupVersionKind() {
	case v1alpha1.GroupVersion.WithKind("Machine"):
		object, err := declared[v1alpha1.Machine](d.machine, u)
		m.machines = append(m.machines, object)
		return err
	case v1alpha1.GroupVersion.WithKind("NetworkConfiguration"):
		return addTo(&m.inputs.Networks, d.network, u)
	case v1alpha1.GroupVersion.WithKind("MachineClass"):
		return addTo(&m.inputs.Classes, d.class, u)
	}
	return nil
}

// addTo appends an object to a list. definition may be nil.
func addTo[T any](list *[]T, definition *schema.Schema, u *unstructured.Unstructured) error {
	read := convert[T]
	if definition != nil {
		read = func(u *unstructured.Unstructured) (*T, error) { return declared[T](definition, u) }
	}
	object, err := read(u)
	if err != nil {
		return err
	}
	*list = append(*list, *object)
	return nil
}

// inDefault puts an object without a namespace where kubectl would.
func inDefault(object metav1.Object) {
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
}

// render renders the NetworkConfigurations and then the Machines, with the settings that kvm-operator machines would have
// with the same flags and environment. The error is about the settings.
func (m *machineManifests) render(flags *pflag.FlagSet, secrets []corev1.Secret) ([]rendering, error) {
	if m.rendered() == 0 {
		return nil, nil
	}
	if err := loadMachines(flags, os.LookupEnv); err != nil {
		return nil, err
	}
	settings, err := machinesSettings(reader{flags})
	if err != nil {
		return nil, err
	}
	inputs := m.inputs
	for i := range secrets {
		secret := secrets[i].DeepCopy()
		inDefault(secret)
		inputs.Secrets = append(inputs.Secrets, *secret)
	}
	for _, other := range m.machines {
		inputs.Machines = append(inputs.Machines, *other)
	}
	var all []rendering
	for i := range inputs.Networks {
		nc := &inputs.Networks[i]
		rendered, err := networkconfiguration.Render(settings, nc)
		all = append(all, rendering{fmt.Sprintf("NetworkConfiguration %s/%s", nc.Namespace, nc.Name), rendered, err})
	}
	for _, object := range m.machines {
		rendered, err := machine.Render(settings, object, inputs)
		all = append(all, rendering{fmt.Sprintf("Machine %s/%s", object.Namespace, object.Name), rendered, err})
	}
	return all, nil
}
