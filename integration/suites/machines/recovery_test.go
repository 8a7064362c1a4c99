package machines_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func failed(reason string, others ...string) want {
	return want{phase: v1alpha1.PhaseFailed, ready: reason, others: others}
}

// TestAnUnknownTemplateIsNamedAndMended is scenario 3.
func TestAnUnknownTemplateIsNamedAndMended(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: huge}")
	bad := failed(v1alpha1.TemplateNotFound)
	bad.says = `template "huge" is unknown; there are small, medium, large`
	p.await(m, bad)
	if m.Status.FailureReason != v1alpha1.TemplateNotFound || m.Status.FailureMessage == "" {
		t.Errorf("the failure is %q: %q", m.Status.FailureReason, m.Status.FailureMessage)
	}
	p.stays(m)
	if err := p.nothing(m); err != nil {
		t.Error(err)
	}
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Template = "small" })
	p.await(m, runs)
	if m.Status.FailureReason != "" || m.Status.FailureMessage != "" {
		t.Errorf("the failure stays: %q: %q", m.Status.FailureReason, m.Status.FailureMessage)
	}
	// An edit that is wrong leaves the guest alone.
	uid := p.vmi(m).UID
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Template = "huge" })
	p.await(m, want{phase: v1alpha1.PhaseRunning, ready: v1alpha1.TemplateNotFound})
	if p.vmi(m).UID != uid {
		t.Error("the guest was replaced")
	}
}

// TestAMissingNetworkIsNamedAndMended is scenario 4.
func TestAMissingNetworkIsNamedAndMended(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small, networks: [{name: eth0, networkName: front}]}")
	bad := failed(v1alpha1.NetworkConfigurationNotFound, "NetworkReady=False/NetworkFailed")
	bad.says = "NetworkConfiguration " + p.namespace + "/front not found"
	p.await(m, bad)
	p.stays(m)
	if err := p.nothing(m); err != nil {
		t.Error(err)
	}
	n := p.network("front", "{vlan: 100, bridge: br1}")
	p.await(m, runs)
	spec := p.vm(m).Spec.Template.Spec
	if networks := spec.Networks; len(networks) != 1 || networks[0].Name != "eth0" || networks[0].Multus == nil || networks[0].Multus.NetworkName != "front" {
		t.Errorf("the networks are %+v", networks)
	}
	if nics := spec.Domain.Devices.Interfaces; len(nics) != 1 || nics[0].Bridge == nil {
		t.Errorf("the interfaces are %+v", nics)
	}
	p.until(func() error { return attached(n, "vm/eth0") })
}

// TestAMissingStorageClassIsNamedAndMended is scenario 5.
func TestAMissingStorageClassIsNamedAndMended(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small, disks: [{name: data, size: 1Gi, storageClass: "+p.namespace+"}]}")
	bad := failed(v1alpha1.StorageClassNotFound, "StorageReady=False/StorageClassNotFound")
	bad.says = p.namespace
	p.await(m, bad)
	p.stays(m)
	if err := p.nothing(m); err != nil {
		t.Error(err)
	}
	standard := &storagev1.StorageClass{}
	if err := api.Get(t.Context(), key(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}}), standard); err != nil {
		t.Fatal(err)
	}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Provisioner: standard.Provisioner,
		AllowVolumeExpansion: ptr.To(true),
	}
	p.create(class)
	t.Cleanup(func() { p.delete(class) })
	p.await(m, runs)
}

// TestAllProblemsAreShownTogether: Ready has the first reason in the order of the reference page, and the message all.
func TestAllProblemsAreShownTogether(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: huge, networks: [{name: eth0, networkName: front}], disks: [{name: data, size: 1Gi, storageClass: none}]}")
	p.await(m, failed(v1alpha1.TemplateNotFound, "NetworkReady=False/NetworkFailed", "StorageReady=False/StorageClassNotFound"))
	for _, part := range []string{`template "huge"`, "front", "none"} {
		w := failed(v1alpha1.TemplateNotFound)
		w.says = part
		if err := w.shows(m); err != nil {
			t.Error(err)
		}
	}
	p.stays(m)
}

// TestAGuestThatFitsNowhereStartsWhenANodeIsAdded is scenario 6 and K6: the scheduler's word.
func TestAGuestThatFitsNowhereStartsWhenANodeIsAdded(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small, resources: {memory: {size: 700Gi}}}")
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.InsufficientResources, others: []string{"VirtualMachineReady=True/VMCreated"}})
	if m.Status.FailureReason != v1alpha1.InsufficientResources || m.Status.State != "ErrorUnschedulable" {
		t.Errorf("the failure is %q and the state %q", m.Status.FailureReason, m.Status.State)
	}
	if _, err := kube.AddNode(t.Context(), "1Ti"); err != nil {
		t.Fatal(err)
	}
	p.await(m, runs)
	if m.Status.FailureReason != "" {
		t.Errorf("the failure stays: %q", m.Status.FailureReason)
	}
}

// TestAQuotaIsNamedAndMended: what the API server refuses because of a quota is no error of KubeVirt.
func TestAQuotaIsNamedAndMended(t *testing.T) {
	p := together(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "storage"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("1Gi")}},
	}
	p.create(quota)
	p.until(func() error {
		if get(p, quota.Name, quota); quota.Status.Hard == nil {
			return errors.New("the quota is not in effect")
		}
		return nil
	})
	m := p.machine("vm", "{template: small}")
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.InsufficientResources, says: "exceeded quota: storage"})
	change(p, quota, func(q *corev1.ResourceQuota) { q.Spec.Hard[corev1.ResourceRequestsStorage] = resource.MustParse("1Ti") })
	p.await(m, runs)
}

// TestWhatKubeVirtRefusesIsShownAndAskedSeldom is scenario 8: the causes of the real webhook, and no hot retry.
func TestWhatKubeVirtRefusesIsShownAndAskedSeldom(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small, domain: {machine: {type: pc-i440fx}}}")
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.KubeVirtAPIError, others: []string{"VirtualMachineReady=False/VMFailed", "StorageReady=True/PVCBound"}, says: "q35*"})
	p.asksSeldom(m)
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Domain.Machine.Type = "pc-q35" })
	p.await(m, runs)
	if got := p.vm(m).Spec.Template.Spec.Domain.Machine.Type; got != "q35" {
		t.Errorf("the machine type is %s", got)
	}
}

// asksSeldom fails the test if the operator asks more than once an interval for a Machine that cannot be, or if the status
// of the Machine changes.
func (p *place) asksSeldom(m *v1alpha1.Machine) {
	p.Helper()
	get(p, m.Name, m)
	count := len(p.operator.Requests.Of(p.namespace))
	p.await(m, want{}) // the status is about the present spec
	version := m.ResourceVersion
	elapsed := p.intervals(4)
	asked := p.operator.Requests.Of(p.namespace)[count:]
	if most := int(elapsed/interval) + 2; len(asked) > most {
		p.Errorf("there are %d requests in %s, more than %d: %v", len(asked), elapsed, most, asked)
	}
	if get(p, m.Name, m); m.ResourceVersion != version {
		p.Errorf("the status changes: %s", describe(m))
	}
}
