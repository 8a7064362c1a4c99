package cmd

import (
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service"
	"github.com/kvm-operator/kvm-operator/service/controller/machine"
)

// defaultMachineSettings are the settings of kvm-operator machines where nothing else is set.
func defaultMachineSettings() vitistack.Settings {
	return vitistack.Settings{
		ManagedBy: "kubevirt-operator", MACSet: 0x12, CNIVersion: "1.0.0",
		AccessMode: string(corev1.ReadWriteMany), VolumeMode: string(corev1.PersistentVolumeBlock),
	}
}

// renderScheme has all kinds that are rendered.
func renderScheme() (*runtime.Scheme, error) {
	scheme, err := service.NewScheme()
	if err != nil {
		return nil, err
	}
	return scheme, kubevirt.AddToScheme(scheme)
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

// render renders the NetworkConfigurations and then the Machines.
func (m *machineManifests) render(secrets []corev1.Secret) []rendering {
	settings, inputs := defaultMachineSettings(), m.inputs
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
		all = append(all, rendering{ref: fmt.Sprintf("NetworkConfiguration %s/%s", nc.Namespace, nc.Name), rendered: machine.RenderNetwork(settings, nc)})
	}
	for _, object := range m.machines {
		rendered, err := machine.Render(settings, object, inputs)
		all = append(all, rendering{fmt.Sprintf("Machine %s/%s", object.Namespace, object.Name), rendered, err})
	}
	return all
}
