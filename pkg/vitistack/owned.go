package vitistack

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// Labels returns the labels of all objects of a Machine.
func Labels(m *v1alpha1.Machine, managedBy string) map[string]string {
	labels := map[string]string{v1alpha1.LabelManagedBy: managedBy, v1alpha1.LabelMachine: m.Name, v1alpha1.LabelSourceMachine: m.Name}
	if cluster := m.Labels[v1alpha1.LabelCluster]; cluster != "" {
		labels[v1alpha1.LabelCluster] = cluster
	}
	return labels
}

// ObjectMeta returns the metadata of an object of a Machine. more are labels besides Labels; it may be nil.
func ObjectMeta(m *v1alpha1.Machine, managedBy, name string, more map[string]string) metav1.ObjectMeta {
	labels := Labels(m, managedBy)
	maps.Copy(labels, more)
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, v1alpha1.GroupVersion.WithKind("Machine"))},
	}
}

// ObjectMeta returns the metadata of an object of the Machine.
func (s *State) ObjectMeta(name string, more map[string]string) metav1.ObjectMeta {
	return ObjectMeta(s.Machine, s.Settings.ManagedBy, name, more)
}

// Owns returns whether an object of the Machine's namespace is the Machine's: it names the Machine as its owner, or it
// names no owner and is one of vitistack's operator, which is adopted.
func (s *State) Owns(object metav1.Object) bool { return s.owns(object) }

func (o *Observed) owns(object metav1.Object) bool {
	if annotations := object.GetAnnotations(); ownership.Has(annotations) {
		named, ok := ownership.Parse(annotations)
		return ok && named.OfCustomResource(ownership.Owner{Kind: ownerKind, Namespace: o.Machine.Namespace, Name: o.Machine.Name})
	}
	adopted, _ := Adopts(object, &metav1.ObjectMeta{Labels: Labels(o.Machine, o.Settings.ManagedBy)}, false)
	return adopted
}

// Adopts decides whether an object without an owner's annotation becomes the Machine's: it has both labels of vitistack's
// operator with the values of the wanted object, and no other controller. It is an apply.Adoption. Who may set labels
// in the namespace can hand an object over, or claim one of vitistack's operator by a Machine of that name.
func Adopts(live, wanted metav1.Object, _ bool) (adopted bool, handOver string) {
	labels, want := live.GetLabels(), wanted.GetLabels()
	same := func(name string) bool { return want[name] != "" && labels[name] == want[name] }
	handOver = "hand it over with the labels " + v1alpha1.LabelManagedBy + "=" + want[v1alpha1.LabelManagedBy] + " and " + v1alpha1.LabelSourceMachine + "=" + want[v1alpha1.LabelSourceMachine]
	if !same(v1alpha1.LabelManagedBy) || !same(v1alpha1.LabelSourceMachine) {
		return false, handOver
	}
	controller := metav1.GetControllerOf(live)
	return controller == nil || controller.APIVersion == v1alpha1.GroupVersion.String() && controller.Kind == "Machine" && controller.Name == want[v1alpha1.LabelSourceMachine], handOver
}

// machineNotOurs reports a VirtualMachine of the Machine's name that is not its own.
func (p *plan) machineNotOurs() {
	if message := p.foreignVM(); message != "" {
		p.report(v1alpha1.NameConflict, "%s", message)
	}
}

// foreignVM says that the VirtualMachine of the Machine's name is not its own; empty if it is, or if there is none.
func (o *Observed) foreignVM() string {
	if o.VM == nil || o.owns(o.VM) {
		return ""
	}
	return fmt.Sprintf("VirtualMachine %s/%s exists and is not this Machine's, so it is left alone; delete it, or rename the Machine", o.VM.Namespace, o.VM.Name)
}
