package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

// refusedStatuses are statuses that the API server refuses, by object.
var refusedStatuses = map[string]map[string]rejection{
	machine: {
		"a condition twice": {
			change: `status: {conditions: [&c {type: Ready, status: "True", reason: A, message: a, lastTransitionTime: "2026-01-01T00:00:00Z"}, *c]}`,
			want:   `status.conditions[1]: Duplicate value: {"type":"Ready"}`,
		},
		"a reason with a space": {
			change: `status: {conditions: [{type: Ready, status: "True", reason: A b, message: a, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
			want:   `status.conditions[0].reason: Invalid value: "A b": conditions[0].reason in body should match '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'`,
		},
		"a time in words": {
			change: "status: {lastUpdated: today}",
			want:   `status.lastUpdated: Invalid value: "today": lastUpdated in body must be of type date-time: "today"`,
		},
	},
	network: {
		"an attachment twice": {
			change: "status: {attachments: [{machine: a, interface: b}, {machine: a, interface: c}, {machine: a, interface: b}]}",
			want:   `status.attachments[2]: Duplicate value: {"interface":"b","machine":"a"}`,
		},
		"an attachment of no machine": {change: "status: {attachments: [{interface: b}]}", want: "status.attachments[0].machine: Required value"},
		"an unknown method": {
			change: "status: {networkInterfaces: [{allocationMethod: bootp}]}",
			want:   `status.networkInterfaces[0].allocationMethod: Unsupported value: "bootp": supported values: "dhcp", "static"`,
		},
	},
}

func TestBadStatusesAreRefused(t *testing.T) {
	for kind, table := range refusedStatuses {
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

// A table is what kubectl get shows of an object, and what it shows only with -o wide. A NetworkConfiguration has two
// columns Name: its own name, and spec.name.
type table struct {
	path       string
	want, wide map[string]any
}

func TestColumns(t *testing.T) {
	for kind, test := range map[string]table{
		machine: {
			path: "/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/db-0",
			want: map[string]any{"Name": "db-0", "Phase": "Running", "Ready": "True", "Template": "small", "IP": "192.0.2.10", "Node": "worker-2"},
			wide: map[string]any{"Reason": "Running", "State": "Running", "Machine Class": nil, "Provider": nil, "VM": "db-0"},
		},
		network: {
			path: "/apis/vitistack.io/v1alpha1/namespaces/team-a/networkconfigurations/front",
			want: map[string]any{"Name": "front", "Bridge": "br0", "VLAN": float64(100), "Ready": "True"},
			wide: map[string]any{"Name": "front", "Phase": "Ready", "Status": "success"},
		},
		class: {
			path: "/apis/vitistack.io/v1alpha1/machineclasses/medium",
			want: map[string]any{"Name": "medium", "Category": "Standard", "Default": true, "Cores": float64(4), "Sockets": float64(1), "Threads": float64(1), "Memory": "16Gi", "Enabled": true},
			wide: map[string]any{},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			server.StoreWithStatus(t, crd.Load(t, kind))
			got, wide := server.Columns(t, test.path)
			if _, ok := got["Age"]; !ok {
				t.Error("there is no column Age")
			}
			delete(got, "Age")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("other columns (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wide, wide); diff != "" {
				t.Errorf("other columns with -o wide (-want +got):\n%s", diff)
			}
		})
	}
}
