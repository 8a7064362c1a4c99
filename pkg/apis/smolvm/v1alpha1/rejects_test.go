package v1alpha1_test

import (
	"fmt"
	"maps"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

const (
	machine = "smolvm"
	node    = "smolvmnode"

	oneSource  = "spec: Invalid value: exactly one of spec.image or spec.from is required"
	nodeIsKept = "spec: Invalid value: spec.nodeName is immutable after binding"
)

// A rejection is a change and the one sentence by which the API server refuses it.
type rejection struct{ change, want string }

// rejected are changes to testdata/smolvm.yaml that the API server refuses.
var rejected = map[string]rejection{
	"an image and a file":      {change: "spec: {from: /var/lib/smolvm/artifacts/a.smolmachine}", want: oneSource},
	"neither image nor file":   {change: "spec: {image: <remove>}", want: oneSource},
	"null instead of an image": {change: "spec: {image: null}", want: oneSource},
	"an empty image": {
		change: `spec: {image: "", from: a}`, want: `spec.image: Invalid value: "": spec.image in body should be at least 1 chars long`,
	},
	"an empty file": {change: `spec: {from: ""}`, want: `spec.from: Invalid value: "": spec.from in body should be at least 1 chars long`},
	"no CPU": {
		change: "spec: {resources: {cpus: 0}}", want: "spec.resources.cpus: Invalid value: 0: spec.resources.cpus in body should be greater than or equal to 1",
	},
	"256 CPUs": {
		change: "spec: {resources: {cpus: 256}}", want: "spec.resources.cpus: Invalid value: 256: spec.resources.cpus in body should be less than or equal to 255",
	},
	"63 MiB": {
		change: "spec: {resources: {memoryMiB: 63}}", want: "spec.resources.memoryMiB: Invalid value: 63: spec.resources.memoryMiB in body should be greater than or equal to 64",
	},
	"no storage": {
		change: "spec: {storage: {storageGiB: 0}}", want: "spec.storage.storageGiB: Invalid value: 0: spec.storage.storageGiB in body should be greater than or equal to 1",
	},
	"no overlay": {
		change: "spec: {storage: {overlayGiB: 0}}", want: "spec.storage.overlayGiB: Invalid value: 0: spec.storage.overlayGiB in body should be greater than or equal to 1",
	},
	"more than 16 TiB": {
		change: "spec: {storage: {storageGiB: 16385}}", want: "spec.storage.storageGiB: Invalid value: 16385: spec.storage.storageGiB in body should be less than or equal to 16384",
	},
	"a text as network":           {change: "spec: {network: {allowedCIDRs: [example.org]}}", want: badCIDR("example.org")},
	"an address without a length": {change: "spec: {network: {allowedCIDRs: [192.0.2.1]}}", want: badCIDR("192.0.2.1")},
	"a length of 33":              {change: "spec: {network: {allowedCIDRs: [192.0.2.0/33]}}", want: badCIDR("192.0.2.0/33")},
	"a list as network": {
		change: "spec: {network: {allowedCIDRs: [[192.0.2.0/24]]}}",
		want:   `spec.network.allowedCIDRs[0]: Invalid value: "array": spec.network.allowedCIDRs[0] in body must be of type string: "array"`,
	},
	"an empty network":               {change: `spec: {network: {allowedCIDRs: [""]}}`, want: badCIDR("")},
	"a host port 0":                  {change: "spec: {network: {ports: [{hostPort: 0, guestPort: 1}]}}", want: badPort("hostPort", 0, "greater than or equal to 1")},
	"a host port 65536":              {change: "spec: {network: {ports: [{hostPort: 65536, guestPort: 1}]}}", want: badPort("hostPort", 65536, "less than or equal to 65535")},
	"a guest port 0":                 {change: "spec: {network: {ports: [{hostPort: 1, guestPort: 0}]}}", want: badPort("guestPort", 0, "greater than or equal to 1")},
	"a guest port 65536":             {change: "spec: {network: {ports: [{hostPort: 1, guestPort: 65536}]}}", want: badPort("guestPort", 65536, "less than or equal to 65535")},
	"a port without a guest port":    {change: "spec: {network: {ports: [{hostPort: 1}]}}", want: "spec.network.ports[0].guestPort: Required value"},
	"a host port that is used twice": {change: "spec: {network: {ports: [{hostPort: 1, guestPort: 1}, {hostPort: 1, guestPort: 2}]}}", want: `spec.network.ports[1]: Duplicate value: {"hostPort":1}`},
	"a variable twice":               {change: "spec: {env: [{name: A, value: a}, {name: A, value: b}]}", want: `spec.env[1]: Duplicate value: {"name":"A"}`},
	"a variable with a dash": {
		change: "spec: {env: [{name: A-B}]}", want: `spec.env[0].name: Invalid value: "A-B": must be the name of a variable: letters, digits and '_', and no digit first`,
	},
	"a relative directory": {change: "spec: {workingDir: srv}", want: `spec.workingDir: Invalid value: "srv": must be an absolute path, for example /srv`},
	"an impossible node":   {change: "spec: {nodeName: Node_1}", want: `spec.nodeName: Invalid value: "Node_1": must be the name of a node, or empty to have one chosen`},
	"an impossible Secret": {change: "spec: {imagePullSecrets: [{name: A}]}", want: `spec.imagePullSecrets[0].name: Invalid value: "A": must be the name of a Secret`},
	"an operator of numbers": {
		change: `spec: {tolerations: [{key: a, operator: Lt, value: "1"}]}`, want: "spec.tolerations: Invalid value: must have the operator Equal or Exists",
	},
	"an unknown effect": {
		change: "spec: {tolerations: [{key: a, operator: Exists, effect: Never}]}",
		want:   "spec.tolerations: Invalid value: must have the effect NoSchedule, PreferNoSchedule or NoExecute, or none for all of them",
	},
	"a toleration of nothing": {change: "spec: {tolerations: [{}]}", want: "spec.tolerations: Invalid value: must have a key; write operator: Exists to tolerate all taints"},
	"a value that is not compared": {
		change: "spec: {tolerations: [{key: a, operator: Exists, value: b}]}", want: "spec.tolerations: Invalid value: must not have a value where the operator is Exists",
	},
	"a text as state": {change: `spec: {running: "yes"}`, want: `spec.running: Invalid value: "string": spec.running in body must be of type boolean: "string"`},
}

func badCIDR(cidr string) string {
	return fmt.Sprintf("spec.network.allowedCIDRs[0]: Invalid value: %q: must be a network with its length, for example 192.0.2.0/24", cidr)
}

func badPort(field string, port int, bound string) string {
	return fmt.Sprintf("spec.network.ports[0].%s: Invalid value: %d: spec.network.ports[0].%s in body should be %s", field, port, field, bound)
}

func TestBadMachinesAreRefusedWithOneSentence(t *testing.T) {
	for name, test := range rejected {
		t.Run(name, func(t *testing.T) {
			err := server.Create(t.Context(), crd.Load(t, machine, test.change), client.DryRunAll)
			crd.Refused(t, err, test.want)
		})
	}
}

// An update changes a machine with the first change into one with the second; want is empty if it is accepted.
type update struct{ before, change, want string }

var updates = map[string]update{
	"the node is set":             {before: "{}", change: "spec: {nodeName: worker-1}"},
	"an empty node is set":        {before: `spec: {nodeName: ""}`, change: "spec: {nodeName: worker-1}"},
	"the node stays":              {before: "spec: {nodeName: worker-1}", change: "spec: {running: false}"},
	"another node":                {before: "spec: {nodeName: worker-1}", change: "spec: {nodeName: worker-2}", want: nodeIsKept},
	"no node":                     {before: "spec: {nodeName: worker-1}", change: "spec: {nodeName: <remove>}", want: nodeIsKept},
	"an empty node":               {before: "spec: {nodeName: worker-1}", change: `spec: {nodeName: ""}`, want: nodeIsKept},
	"both sources":                {before: "{}", change: "spec: {from: a}", want: oneSource},
	"another image":               {before: "{}", change: "spec: {image: nginx:2}"},
	"a file instead of the image": {before: "{}", change: "spec: {image: <remove>, from: a}"},
	"less storage":                {before: "{}", change: "spec: {storage: {storageGiB: 1}}"},
}

func TestUpdates(t *testing.T) {
	for name, test := range updates {
		t.Run(name, func(t *testing.T) {
			stored := server.Store(t, crd.Load(t, machine, test.before))
			crd.Merge(stored.Object, crd.Parse(t, test.change))
			err := server.Update(t.Context(), stored, client.DryRunAll)
			crd.Answered(t, err, test.want)
		})
	}
}

// TestEveryRuleRefusesSomething holds the tables complete: a rule of the CRDs that no row runs into has no test.
func TestEveryRuleRefusesSomething(t *testing.T) {
	said := map[string][]string{}
	for _, table := range []map[string]rejection{rejected, refusedStatuses} {
		for row := range maps.Values(table) {
			said[machines] = append(said[machines], row.want)
		}
	}
	for row := range maps.Values(updates) {
		said[machines] = append(said[machines], row.want)
	}
	for row := range maps.Values(refusedNodes) {
		said[nodes] = append(said[nodes], row.want)
	}
	rules := 0
	for _, file := range []string{machines, nodes} {
		rules += crd.EveryRuleSpeaks(t, file, said[file])
	}
	if rules < 10 {
		t.Errorf("the test has found %d rules and overlooks most", rules)
	}
}
