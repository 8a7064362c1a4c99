package smolvm

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/placing"
)

// cached is a cache with one node.
type cached struct {
	client.Reader
	vms []*v1alpha1.SmolVM
}

func (c *cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.SmolVMNodeList:
		now := metav1.Now()
		n := v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		n.Status = v1alpha1.SmolVMNodeStatus{
			HeartbeatTime: &now, Accelerator: v1alpha1.AcceleratorTCG, Endpoint: v1alpha1.Endpoint{PodIP: "10.0.0.1", Port: 1},
			Allocatable: v1alpha1.Allocatable{CPUs: 8, StorageGiB: 100},
		}
		for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionRuntimeReady, v1alpha1.NodeConditionSchedulable} {
			n.Status.Conditions = append(n.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
		list.Items = append(list.Items, n)
	case *corev1.NodeList:
		host := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		host.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		list.Items = append(list.Items, host)
	case *v1alpha1.SmolVMList:
		for _, vm := range c.vms {
			list.Items = append(list.Items, *vm)
		}
	}
	return nil
}

func vmWith(name, node string, cpus int32) *v1alpha1.SmolVM {
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: types.UID(name)}}
	vm.Spec = v1alpha1.SmolVMSpec{Image: "alpine", Resources: v1alpha1.Resources{CPUs: cpus}}
	vm.Status.NodeName = node
	return vm
}

// TestAnEditTakesNothingBeforeItIsFoundToFit: neither of a machine that is not there yet, nor of one that runs.
func TestAnEditTakesNothingBeforeItIsFoundToFit(t *testing.T) {
	a := vmWith("a", "n1", 2)
	c := &cached{vms: []*v1alpha1.SmolVM{a}}
	p := newPlacer(c, nodes.New(nodes.Options{}), clock.RealClock{})
	fits := func(name string, cpus int32) bool {
		d, _, err := p.place(t.Context(), vmWith(name, "", cpus))
		p.forget(types.NamespacedName{Namespace: "lab", Name: name})
		return err == nil && d.Node == "n1"
	}
	if !fits("before", 6) {
		t.Fatal("there is no room")
	}
	a.Spec.Resources.CPUs = 9
	if lacks, _, err := p.shortage(t.Context(), a, nil); err != nil || lacks == "" {
		t.Errorf("it lacks %q, %v", lacks, err)
	}
	if !fits("beside", 6) {
		t.Error("what does not fit takes room")
	}
	a.Spec.Resources.CPUs = 5
	if lacks, changed, err := p.shortage(t.Context(), a, nil); err != nil || lacks != "" || !changed {
		t.Errorf("it lacks %q, %v; changed: %t", lacks, err, changed)
	}
	if fits("after", 6) || !fits("small", 3) {
		t.Error("what was found to fit is not counted as it is")
	}

	m := &api.Machine{State: api.StateRunning, CPUs: 5, MemoryMB: 512, StorageGB: 20, OverlayGB: 10}
	a.Spec.Storage.StorageGiB, a.Spec.Resources.CPUs = 60, 200
	for state, disks := range map[api.State]int64{api.StateRunning: 30, api.StateStopped: 70} {
		m.State = state
		p.settle(a, m)
		p.granted[client.ObjectKeyFromObject(a)] = having(placing.ClaimOf(vmWith("a", "n1", 5)), m)
		if lacks, _, err := p.shortage(t.Context(), a, m); err != nil || lacks != "" {
			t.Errorf("%s: a larger disk lacks %q, %v", state, lacks, err)
		}
		if got := p.granted[client.ObjectKeyFromObject(a)]; got.StorageGiB != disks || got.CPUs != 5 {
			t.Errorf("%s: it takes %+v", state, got)
		}
	}
	p.settle(a, m)
	if got := p.granted[client.ObjectKeyFromObject(a)]; got.StorageGiB != 30 {
		t.Errorf("what is no longer wanted is counted: %+v", got)
	}
}
