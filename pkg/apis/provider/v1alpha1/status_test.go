package v1alpha1_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

func TestTheStatusOfTheOriginalIsAccepted(t *testing.T) {
	for name, change := range map[string]string{
		"in full":           "{}",
		"with null lists":   "status: {cluster: {conditions: null, nodes: null, versions: null, resources: null}, kvm: {nodeIndexes: null}}",
		"with a date":       "status: {cluster: {versions: [{semver: 3.18.6, date: null, lastTransitionTime: null}]}}",
		"without kvm":       "status: {kvm: <remove>}",
		"without a cluster": "status: {cluster: <remove>}",
	} {
		t.Run(name, func(t *testing.T) {
			created := server.Store(t, crd.Load(t, "old-full"))
			status := crd.Load(t, "old-status", change).Object["status"]
			created.Object["status"] = status
			if err := server.Status().Update(context.Background(), created); err != nil {
				t.Fatal(err)
			}
			for _, loss := range crd.Lost("status", status, created.Object["status"]) {
				t.Errorf("not what was written: %s", loss)
			}
		})
	}
}

// refusedStatuses are changes to testdata/old-status.yaml that Go could not decode: one such object would hide all
// others from the operator.
var refusedStatuses = map[string]rejection{
	"an index of 33 bits": {
		change: "status: {kvm: {nodeIndexes: {m0aaa: 4294967296}}}",
		want:   "status.kvm.nodeIndexes: Invalid value: must be numbers of 32 bits",
	},
	"a time of the year 0": {
		change: `status: {cluster: {conditions: [{type: Created, status: "True", lastTransitionTime: "0000-01-01T00:00:00Z"}]}}`,
		want:   `status.cluster.conditions[0].lastTransitionTime: Invalid value: "0000-01-01T00:00:00Z": must be a time like 2006-01-02T15:04:05Z`,
	},
	"a version of the year 0": {
		change: `status: {cluster: {versions: [{semver: 3.18.6, date: "0000-01-01T00:00:00Z"}]}}`,
		want:   `status.cluster.versions[0].date: Invalid value: "0000-01-01T00:00:00Z": must be a time like 2006-01-02T15:04:05Z`,
	},
	"a minority of the year 0": {
		change: `status: {minoritySince: "0000-01-01T00:00:00Z"}`,
		want:   `status.minoritySince: Invalid value: "0000-01-01T00:00:00Z": must be a time like 2006-01-02T15:04:05Z`,
	},
	"a node of the year 0": {
		change: `status: {nodes: [{id: m0aaa, role: master, phase: Ready, since: "0000-01-01T00:00:00Z"}]}`,
		want:   `status.nodes[0].since: Invalid value: "0000-01-01T00:00:00Z": must be a time like 2006-01-02T15:04:05Z`,
	},
	"a condition of the year 0": {
		change: `status: {conditions: [{type: Ready, status: "True", reason: A, message: a, lastTransitionTime: "0000-01-01T00:00:00Z"}]}`,
		want:   "status.conditions: Invalid value: must have times like 2006-01-02T15:04:05Z",
	},
}

func TestStatusesThatCannotBeDecodedAreRefused(t *testing.T) {
	created := server.Store(t, crd.Load(t, "old-full"))
	for name, test := range refusedStatuses {
		t.Run(name, func(t *testing.T) {
			changed := created.DeepCopy()
			changed.Object["status"] = crd.Load(t, "old-status", test.change).Object["status"]
			err := server.Status().Update(context.Background(), changed, client.DryRunAll)
			crd.Refused(t, err, test.want)
		})
	}
}

// TestStatus writes what the operator writes, zero times in the old block included, and reads the columns of kubectl.
func TestStatus(t *testing.T) {
	server.Store(t, crd.Load(t, "minimal", "spec: {cluster: {customer: {id: acme}}}"))
	var object v1alpha1.KVMConfig
	if err := server.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "demo"}, &object); err != nil {
		t.Fatal(err)
	}
	object.Status = v1alpha1.KVMConfigStatus{
		ObservedGeneration: 1,
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "WorkersNotReady", Message: "1 of 2 workers is ready", LastTransitionTime: metav1.Now(),
		}},
		Nodes:    []v1alpha1.NodeStatus{{ID: "m1", Role: "master", Phase: "Ready"}, {ID: "w1", Role: "worker", Phase: "Pending"}},
		Versions: &v1alpha1.Versions{Kubernetes: "1.35.4"},
		Cluster:  &v1alpha1.LegacyClusterStatus{Conditions: []v1alpha1.LegacyCondition{{Type: "Creating", Status: "True"}}},
		KVM:      &v1alpha1.LegacyKVMStatus{NodeIndexes: map[string]int32{"m1": 1}},
	}
	if err := server.Status().Update(context.Background(), &object); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"Name": "demo", "ID": "demo", "Ready": "False", "Reason": "WorkersNotReady", "Kubernetes": "1.35.4", "Customer": "acme",
		"Message": "1 of 2 workers is ready",
	}
	got := server.AllColumns(t, "/apis/provider.giantswarm.io/v1alpha1/namespaces/default/kvmconfigs/demo")
	delete(got, "Age")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other columns (-want +got):\n%s", diff)
	}
}
