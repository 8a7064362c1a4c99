package machines_test

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func inNamespace(p *place) client.ListOption { return client.InNamespace(p.namespace) }

// attachment returns an error unless there is a NetworkAttachmentDefinition of a name.
func (p *place) attachment(name string) error {
	return read(p, name, &multusv1.NetworkAttachmentDefinition{})
}

// foreignClaim returns a claim that the Machine does not own.
func foreignClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// TestForeignObjectsOfTheNameAreUntouched is scenario 18: on creation and on deletion, and the Machine is made once they are
// gone.
func TestForeignObjectsOfTheNameAreUntouched(t *testing.T) {
	p := together(t)
	vm := &kubevirtv1.VirtualMachine{}
	p.yaml("metadata: {name: vm}\nspec: {runStrategy: Halted, template: {spec: {domain: {devices: {}, memory: {guest: 1Gi}}}}}", vm)
	for name, c := range map[string]struct {
		spec    string
		foreign client.Object
		kind    client.Object
		other   string
	}{
		"vm":      {"{template: small}", vm, &kubevirtv1.VirtualMachine{}, "VirtualMachineReady=False/VMFailed"},
		"claim":   {"{template: small}", foreignClaim(p.namespace, "claim-root"), &corev1.PersistentVolumeClaim{}, "StorageReady=False/PVCPending"},
		"secret":  {"{template: small, cloudInit: {secretRef: {name: data}}}", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "secret-cloudinit"}}, &corev1.Secret{}, ""},
		"network": {"{template: small, networks: [{name: eth0, networkName: nad}]}", &multusv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "nad"}}, &multusv1.NetworkAttachmentDefinition{}, "NetworkReady=False/NetworkFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some of the operator's refusals hold for 30 seconds
			p := &place{T: t, namespace: p.namespace, operator: p.operator}
			p.create(c.foreign)
			switch name {
			case "secret":
				p.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "data"}, StringData: map[string]string{"userdata": "#cloud-config\n"}})
			case "network":
				p.network("nad", "{vlan: 9}")
			}
			m := p.machine(name, c.spec)
			w := want{phase: v1alpha1.PhaseFailed, ready: v1alpha1.NameConflict}
			if c.other != "" {
				w.others = []string{c.other}
			}
			if name == "network" { // the other controller's object
				w = want{ready: v1alpha1.NetworkAttachmentFailed, others: w.others}
			}
			p.await(m, w)
			p.untouched(c.foreign, c.kind)
			p.delete(m)
			p.until(func() error { return gone(m.DeepCopy()) })
			p.untouched(c.foreign, c.kind)
			again := p.machine(name, c.spec)
			p.await(again, w)
			p.delete(c.foreign)
			p.await(again, runs)
		})
	}
}

// untouched fails the test if the operator has written or deleted an object. into is an empty object of its kind.
func (p *place) untouched(object, into client.Object) {
	p.Helper()
	now := get(p, object.GetName(), reflect.New(reflect.TypeOf(into).Elem()).Interface().(client.Object))
	if now.GetUID() != object.GetUID() || now.GetDeletionTimestamp() != nil {
		p.Errorf("%s was deleted", object.GetName())
	}
	if len(now.GetOwnerReferences()) > 0 || now.GetLabels()[v1alpha1.LabelMachine] != "" {
		p.Errorf("%s was taken over: %v %v", object.GetName(), now.GetOwnerReferences(), now.GetLabels())
	}
	for _, field := range now.GetManagedFields() {
		if field.Manager == "kvm-operator" || field.Manager == "kubevirt-machine-operator" {
			p.Errorf("%s was written by %s", object.GetName(), field.Manager)
		}
	}
}

// TestMachinesOfOtherProvidersAreIgnored is scenario 20.
func TestMachinesOfOtherProvidersAreIgnored(t *testing.T) {
	p := together(t)
	other := p.machine("other", "{template: small, provider: proxmox}")
	ours := p.machine("ours", "{template: small, provider: kubevirt}")
	p.await(ours, runs)
	p.stays(ours, other)
	if len(other.Finalizers) > 0 || other.Status.Phase != "" {
		t.Errorf("it has finalizers %v and phase %q", other.Finalizers, other.Status.Phase)
	}
	if err := p.nothing(other); err != nil {
		t.Error(err)
	}
}

// TestMachinesOfOneNameInTwoNamespacesAreTwo is the first part of K12.
func TestMachinesOfOneNameInTwoNamespacesAreTwo(t *testing.T) {
	p := alone(t)
	q := newPlace(t)
	q.operator = p.operator
	first, second := p.machine("vm", "{template: small}"), q.machine("vm", "{template: medium}")
	p.await(first, runs)
	q.await(second, runs)
	for m, place := range map[*v1alpha1.Machine]*place{first: p, second: q} {
		owner := metav1.GetControllerOf(place.vm(m))
		if owner == nil || owner.UID != m.UID {
			t.Errorf("the owner of the VirtualMachine in %s is %v", place.namespace, owner)
		}
	}
	uid := q.vmi(second).UID
	p.delete(first)
	p.until(func() error { return gone(first.DeepCopy()) })
	q.await(second, runs)
	if q.vmi(second).UID != uid || fmt.Sprint(q.claims(second)) != "[vm-root]" {
		t.Errorf("the other one has guest %s and claims %v", q.vmi(second).UID, q.claims(second))
	}
}
