package machines_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

var withoutKubeVirt = want{
	phase: v1alpha1.PhaseCreating, ready: v1alpha1.KubeVirtAPIError, says: "KubeVirt is not installed",
	others: []string{"VirtualMachineReady=False/VMFailed", "StorageReady=True/PVCBound"},
}

// TestKubeVirtComesAndGoes is scenarios 7 and 13, and K4: an operator starts without KubeVirt, which is installed, removed
// and installed again, and never needs a restart. It is the first test because the others need KubeVirt.
func TestKubeVirtComesAndGoes(t *testing.T) {
	p := newPlace(t)
	p.operator = serve(t)
	m, doomed := p.machine("vm", "{template: small}"), p.machine("doomed", "{template: small}")
	for _, m := range []*v1alpha1.Machine{m, doomed} {
		p.await(m, withoutKubeVirt)
	}
	p.operator.healthy(t)
	p.stays(m, doomed)
	needKubeVirt(t)
	p.await(m, runs)
	p.await(doomed, runs)
	p.stays(m, doomed)

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := kube.Uninstall(ctx); err != nil {
		t.Fatal(err)
	}
	p.await(m, withoutKubeVirt)
	p.operator.healthy(t)
	// Its VirtualMachine is gone with the kind, so nothing holds the Machine up.
	p.delete(doomed)
	p.until(func() error { return gone(doomed.DeepCopy()) })
	p.until(func() error {
		if claims := p.claims(doomed); len(claims) > 0 {
			return fmt.Errorf("there are claims %v", claims)
		}
		return nil
	})
	if err := kube.Install(ctx); err != nil {
		t.Fatal(err)
	}
	p.await(m, runs)
	p.operator.healthy(t)
}

// TestKubeVirtDoesNotAnswer is K5: without virt-api, the API server refuses every write of a VirtualMachine. The operator
// says so, asks seldom, and recovers.
func TestKubeVirtDoesNotAnswer(t *testing.T) {
	p := alone(t)
	running := p.machine("running", "{template: small}")
	p.await(running, runs)
	if err := kube.StopAPI(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	m := p.machine("vm", "{template: small}")
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.KubeVirtAPIError, others: []string{"VirtualMachineReady=False/VMFailed"}})
	change(p, running, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Sockets = 2 })
	p.await(running, want{phase: v1alpha1.PhaseRunning, ready: v1alpha1.KubeVirtAPIError})
	p.operator.healthy(t)
	p.intervals(4)
	posts := 0
	for _, r := range p.operator.Requests.Of(p.namespace) {
		if r.Method == http.MethodPost && contains(r.Path, "/virtualmachines") && r.Status >= http.StatusInternalServerError {
			posts++
		}
	}
	// One attempt an interval, and a few with growing pauses.
	if elapsed := time.Since(began); posts > int(elapsed/interval)+8 {
		t.Errorf("%d attempts in %s", posts, elapsed)
	}
	if err := kube.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.await(m, runs)
	p.await(running, runs)
	if sockets := p.vm(running).Spec.Template.Spec.Domain.CPU.Sockets; sockets != 2 {
		t.Errorf("there are %d sockets", sockets)
	}
}

// TestALostNodeIsSeen is K8: the node of a guest is dead, and comes back. KubeVirt 1.8 says that the guest is not ready. It
// never writes the phase Unknown, which its API has, so virt-handler's player does.
func TestALostNodeIsSeen(t *testing.T) {
	p := alone(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	p.until(func() error { return p.placed(m) })
	node := m.Status.NodeName
	if err := kube.LoseNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	p.until(func() error {
		get(p, m.Name, m)
		if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status == "True" {
			return errors.New("the Machine is still Ready: " + describe(m))
		}
		return nil
	})
	t.Log(describe(m))
	if err := kube.FindNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	p.await(m, runs)
	const unknown = "Unknown"
	if err := kube.Handler().SetPhase(t.Context(), key(m), unknown, kubevirt.Running); err != nil {
		t.Fatal(err)
	}
	p.await(m, want{phase: v1alpha1.PhaseRunning, ready: v1alpha1.ReasonNodeUnreachable})
	if m.Status.State != unknown || m.Status.NodeName != node {
		t.Errorf("the state is %q, and the node %q", m.Status.State, m.Status.NodeName)
	}
	if err := kube.Handler().SetPhase(t.Context(), key(m), kubevirt.Running, unknown); err != nil {
		t.Fatal(err)
	}
	p.await(m, runs)
}

// TestALateVolumeDoesNotHoldUpTheVirtualMachine is K7: a class whose volumes wait for their first consumer.
func TestALateVolumeDoesNotHoldUpTheVirtualMachine(t *testing.T) {
	p := together(t)
	storage.Hold(p.namespace)
	defer storage.Release(p.namespace)
	m := p.machine("vm", "{template: small, disks: [{name: root, storageClass: late}]}")
	p.await(m, want{phase: v1alpha1.PhaseCreating, others: []string{"StorageReady=False/PVCPending", "VirtualMachineReady=True/VMCreated"}})
	if err := read(p, m.Name, &kubevirtv1.VirtualMachine{}); apierrors.IsNotFound(err) {
		t.Error("there is no VirtualMachine")
	}
	p.until(func() error {
		if get(p, m.Name, m); m.Status.State != string(kubevirtv1.VirtualMachineStatusWaitingForVolumeBinding) {
			return errors.New("virt-controller does not wait for the volume: " + describe(m))
		}
		return nil
	})
	p.stays(m)
	storage.Release(p.namespace)
	p.await(m, runs)
}
