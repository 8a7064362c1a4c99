package v1alpha1_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		created := create(t, load(t, kind))
		for name, test := range table {
			t.Run(kind+"/"+name, func(t *testing.T) {
				changed := created.DeepCopy()
				merge(changed.Object, parse(t, test.change))
				err := server.Status().Update(t.Context(), changed, client.DryRunAll)
				if diff := cmp.Diff([]string{test.want}, sentences(err)); diff != "" {
					t.Errorf("the API server says something else (-want +got):\n%s", diff)
				}
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
			want := load(t, kind, test.change)
			created := create(t, want)
			created.Object["status"] = want.Object["status"]
			if err := server.Status().Update(t.Context(), created); err != nil {
				t.Fatal(err)
			}
			got := columns(t, test.path)
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

// columns is one object as kubectl get -o wide prints it.
func columns(t *testing.T, path string) map[string]any {
	t.Helper()
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	response, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(response.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	cells := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name] = table.Rows[0].Cells[i]
	}
	return cells
}
