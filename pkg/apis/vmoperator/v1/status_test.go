package v1_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	vmv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// refusedStatuses are statuses that the API server refuses.
var refusedStatuses = map[string]rejection{
	"an unknown phase": {
		change: "status: {phase: Booting}",
		want:   `status.phase: Unsupported value: "Booting": supported values: "Stopped", "Starting", "Running", "Stopping", "Failed"`,
	},
	"a negative number of CPUs": {
		change: "status: {cpus: -1}",
		want:   "status.cpus: Invalid value: -1: cpus in body should be greater than or equal to 0",
	},
	"a serial below -1": {
		change: "status: {displayPasswordSerial: -2}",
		want:   "status.displayPasswordSerial: Invalid value: -2: displayPasswordSerial in body should be greater than or equal to -1",
	},
	"a condition of the year 0": {
		change: `status: {conditions: [{type: Ready, status: "True", reason: A, message: a, lastTransitionTime: "0000-01-01T00:00:00Z"}]}`,
		want:   "status.conditions: Invalid value: must have times like 2006-01-02T15:04:05Z",
	},
}

func TestBadStatusesAreRefused(t *testing.T) {
	created := server.Store(t, crd.Load(t, "minimal"))
	for name, test := range refusedStatuses {
		t.Run(name, func(t *testing.T) {
			changed := created.DeepCopy()
			crd.Merge(changed.Object, crd.Parse(t, test.change))
			err := server.Status().Update(context.Background(), changed, client.DryRunAll)
			crd.Refused(t, err, test.want)
		})
	}
}

// TestStatus writes what the operator writes, and reads the columns of kubectl.
func TestStatus(t *testing.T) {
	server.Store(t, crd.Load(t, "minimal"))
	var object vmv1.VirtualMachine
	if err := server.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "tiny"}, &object); err != nil {
		t.Fatal(err)
	}
	written := vmv1.VirtualMachineStatus{
		ObservedGeneration: 1,
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "Starting", Message: "the guest starts", LastTransitionTime: metav1.Now().Rfc3339Copy(),
		}},
		Phase: vmv1.PhaseStarting, Node: "host-1", PodIP: "10.0.0.7", RunnerVersion: "4.0.0", CPUs: 2, RAM: "1Gi", Accelerator: "kvm",
		MachineType: "pc-q35-10.0", InstanceID: "v17", ConsoleClient: "192.0.2.1", ConsoleUser: "carol", LoggedInUser: "carol", DisplayPasswordSerial: -1,
		Disks:      []vmv1.DiskStatus{{Name: "system", Claim: "system-disk-tiny-0", Device: "/dev/system-disk"}},
		OSInfo:     &runtime.RawExtension{Raw: []byte(`{"id":"debian","versions":[12]}`)},
		Assignment: &vmv1.Assignment{Pool: "desks", User: "carol", LastUsed: "2026-01-31T12:00:00Z"},
	}
	object.Status = *written.DeepCopy()
	if err := server.Status().Update(context.Background(), &object); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, object.Status); diff != "" {
		t.Errorf("not what was written (-want +got):\n%s", diff)
	}
	want := map[string]any{
		"Name": "tiny", "State": "Stopped", "Phase": "Starting", "CPUs": 2.0, "RAM": "1Gi", "Node": "host-1", "IP": "10.0.0.7", "Message": "the guest starts",
	}
	got := server.AllColumns(t, "/apis/vmoperator.jdrupes.org/v1/namespaces/default/vms/tiny")
	delete(got, "Age")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other columns (-want +got):\n%s", diff)
	}
}
