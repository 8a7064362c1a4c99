package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

const badTimes = "must have times like 2006-01-02T15:04:05Z"

// refusedStatuses are statuses of a SmolVM that the API server refuses.
var refusedStatuses = map[string]rejection{
	"an unknown phase": {
		change: "status: {phase: Booting}",
		want:   `status.phase: Unsupported value: "Booting": supported values: "Pending", "Scheduled", "Created", "Running", "Stopped", "Unknown", "Failed", "Deleting"`,
	},
	"an unknown accelerator": {change: "status: {accelerator: hvf}", want: `status.accelerator: Unsupported value: "hvf": supported values: "kvm", "tcg"`},
	"a start in the year 0": {
		change: `status: {startTime: "0000-01-01T00:00:00Z"}`, want: `status.startTime: Invalid value: "0000-01-01T00:00:00Z": must be a time like 2006-01-02T15:04:05Z`,
	},
	"a condition of the year 0": {
		change: `status: {conditions: [{type: Ready, status: "True", reason: A, message: a, lastTransitionTime: "0000-01-01T00:00:00Z"}]}`,
		want:   "status.conditions: Invalid value: " + badTimes,
	},
	"a condition twice": {
		change: `status: {conditions: [&c {type: Ready, status: "True", reason: A, message: a, lastTransitionTime: "2026-01-01T00:00:00Z"}, *c]}`,
		want:   `status.conditions[1]: Duplicate value: {"type":"Ready"}`,
	},
}

// refusedNodes are statuses of a SmolVMNode that the API server refuses.
var refusedNodes = map[string]rejection{
	"a heartbeat in the year 0": {
		change: `status: {heartbeatTime: "0000-01-01T00:00:00Z"}`, want: `status.heartbeatTime: Invalid value: "0000-01-01T00:00:00Z": must be a time like 2006-01-02T15:04:05Z`,
	},
	"a condition of the year 0": {
		change: `status: {conditions: [{type: Ready, status: "True", reason: A, message: a, lastTransitionTime: "0000-01-01T00:00:00Z"}]}`,
		want:   "status.conditions: Invalid value: " + badTimes,
	},
	"a port of 65536": {
		change: "status: {endpoint: {port: 65536}}", want: "status.endpoint.port: Invalid value: 65536: endpoint.port in body should be less than or equal to 65535",
	},
	"less than no memory": {
		change: "status: {allocatable: {memoryMiB: -1}}", want: "status.allocatable.memoryMiB: Invalid value: -1: allocatable.memoryMiB in body should be greater than or equal to 0",
	},
	"a feature twice": {change: "status: {features: [a, a]}", want: `status.features[1]: Duplicate value: "a"`},
}

func TestBadStatusesAreRefused(t *testing.T) {
	for kind, table := range map[string]map[string]rejection{machine: refusedStatuses, node: refusedNodes} {
		created := server.Store(t, crd.Load(t, kind))
		for name, test := range table {
			t.Run(kind+"/"+name, func(t *testing.T) {
				changed := created.DeepCopy()
				crd.Merge(changed.Object, crd.Parse(t, test.change))
				err := server.Status().Update(t.Context(), changed, client.DryRunAll)
				crd.Refused(t, err, test.want)
			})
		}
	}
}

// TestColumns reads the columns of kubectl get -o wide.
func TestColumns(t *testing.T) {
	for kind, test := range map[string]struct {
		path, change string
		want         map[string]any
	}{
		machine: {
			path:   "/apis/vm.smolvm.dev/v1alpha1/namespaces/team-a/smolvms/web-1",
			change: `status: {conditions: [{type: Reconciled, status: "True", reason: Reconciled, message: desired state, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
			want:   map[string]any{"Name": "web-1", "Phase": "Running", "Node": "worker-2", "Machine": "k8s-team-a-web-1-3fb1c09e7a", "Message": "desired state"},
		},
		node: {
			path: "/apis/vm.smolvm.dev/v1alpha1/smolvmnodes/worker-2", change: "status: {accelerator: kvm}",
			want: map[string]any{"Name": "worker-2", "Ready": "True", "Runtime": "1.0.0", "Accelerator": "kvm", "Message": "runtime healthy"},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			server.StoreWithStatus(t, crd.Load(t, kind, test.change))
			got := server.AllColumns(t, test.path)
			for _, time := range []string{"Age", "Heartbeat"} {
				if _, ok := got[time]; !ok && (time == "Age" || kind == node) {
					t.Errorf("there is no column %s", time)
				}
				delete(got, time)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("other columns (-want +got):\n%s", diff)
			}
		})
	}
}
