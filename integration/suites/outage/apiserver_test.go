package outage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestAPIServerGoesAway stops the API server during operations. These tests are not parallel because all share the API
// server.
//
// Each test has its own operator: after several outages in two minutes, an operator waits longer and longer, up to a
// minute, before it connects again (client-go, tools/cache/reflector.go).
func TestAPIServerGoesAway(t *testing.T) {
	first := theLab.Run(t, ofShard("outage"))
	calm := makeCluster("calm1", "outage")
	theLab.Create(t, calm)
	theLab.AwaitReady(t, calm)
	created := dump(t, calm)
	lab.Change(t, theLab, calm, roll)
	theLab.AwaitReady(t, calm)
	rolled := dump(t, calm)
	first.Stop()

	config := makeCluster("rough", "outage")
	t.Run("during creation", func(t *testing.T) {
		operator := theLab.Run(t, ofShard("outage"))
		theLab.Create(t, config)
		exists(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "rough", Name: "rough"}})
		outage(t, operator)
		theLab.AwaitReady(t, config)
		compare(t, created, config)
	})
	t.Run("during a roll", func(t *testing.T) {
		operator := theLab.Run(t, ofShard("outage"))
		master := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "rough", Name: "master-m0aaa"}}
		theLab.Get(t, master)
		before := master.Generation
		lab.Change(t, theLab, config, roll)
		lab.Eventually(t, lab.Timeout, func() error {
			theLab.Get(t, master)
			if master.Generation == before {
				return fmt.Errorf("the roll has not begun")
			}
			return nil
		})
		outage(t, operator)
		theLab.AwaitReady(t, config)
		compare(t, rolled, config)
	})
	t.Run("during deletion", func(t *testing.T) {
		operator := theLab.Run(t, ofShard("outage"))
		theLab.Delete(t, config)
		lab.Eventually(t, lab.Timeout, func() error {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "rough", Name: "master-m0aaa"}}
			if theLab.Exists(t, d) {
				return fmt.Errorf("Deployment %s exists", d.Name)
			}
			return nil
		})
		outage(t, operator)
		theLab.AwaitGone(t, config)
		theLab.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace("rough")}})
		if left := theLab.Objects(t, config); len(left) != 0 {
			t.Errorf("%d objects are left", len(left))
		}
	})
	t.Run("and the other cluster is unchanged", func(t *testing.T) {
		theLab.Run(t, ofShard("outage"))
		theLab.AwaitReady(t, calm)
		compare(t, rolled, calm)
	})
}

// outage stops the control plane for some time, as a reboot of its machine does. Of the connected clients only the
// operator keeps running, because the others' recovery from lost watches is not tested here.
func outage(t *testing.T, operator *lab.Operator) {
	t.Helper()
	others := []managementcluster.Component{managementcluster.ControllerManager, managementcluster.Scheduler, managementcluster.Kwok}
	for _, component := range append(others, managementcluster.APIServer) {
		if err := theLab.StopComponent(component); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, operator, length)
	restart(t, managementcluster.APIServer)
	// A new kwok would wait until the leases of the old one have expired.
	leases, err := client.New(theLab.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := leases.DeleteAllOf(context.Background(), &coordinationv1.Lease{}, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		t.Fatal(err)
	}
	for _, component := range others {
		restart(t, component)
	}
}

func restart(t *testing.T, component managementcluster.Component) {
	t.Helper()
	if err := theLab.StartComponent(context.Background(), component); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, object client.Object) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		return theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	})
}

// compare fails when a cluster differs from one without faults.
func compare(t *testing.T, want map[string]string, config *v1alpha1.KVMConfig) {
	t.Helper()
	if diff := cmp.Diff(want, dump(t, config)); diff != "" {
		t.Errorf("not as without trouble (-calm +rough):\n%s", diff)
	}
	onePodEach(t, config)
}
