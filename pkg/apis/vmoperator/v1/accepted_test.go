package v1_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	vmv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

func TestTheExamplesAreStoredWithTheDefaults(t *testing.T) {
	for _, name := range []string{"minimal", "full"} {
		t.Run(name, func(t *testing.T) {
			want := crd.Load(t, name)
			created := server.Store(t, want)
			for _, loss := range crd.Lost("spec", want.Object["spec"], created.Object["spec"]) {
				t.Errorf("not what was written: %s", loss)
			}
			if diff := cmp.Diff(crd.Load(t, name+"-defaulted").Object["spec"], created.Object["spec"]); diff != "" {
				t.Errorf("other defaults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaults: whatever part of the object is left out, the same spec is stored.
func TestDefaults(t *testing.T) {
	for name, change := range map[string]string{
		"everything left out":      "spec: {}",
		"empty objects":            "spec: {runnerTemplate: {}, vm: {display: {spice: {}}}}",
		"null instead of objects":  "spec: {runnerTemplate: null, image: null, cloudInit: null, vm: {display: null, networks: null, disks: null}}",
		"null instead of a number": "spec: {guestShutdownStops: null, vm: {powerdownTimeout: null, state: null, display: {outputs: null, spice: {port: null}}}}",
	} {
		t.Run(name, func(t *testing.T) {
			created := server.Store(t, crd.Load(t, "minimal", change))
			if diff := cmp.Diff(crd.Load(t, "minimal-defaulted").Object["spec"], created.Object["spec"]); diff != "" {
				t.Errorf("other defaults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValuesAtTheLimitsAreAccepted(t *testing.T) {
	for name, change := range map[string]string{
		"a name of 52 characters":        "metadata: {name: a234567890123456789012345678901234567890123456789012}",
		"a name of digits":               `metadata: {name: "7"}`,
		"288 CPUs":                       "spec: {vm: {maximumCpus: 288, currentCpus: 288}}",
		"a product of 288 CPUs":          "spec: {vm: {maximumCpus: <remove>, currentCpus: 288, cpuTopology: {sockets: 18, coresPerDie: 8, threadsPerCore: 2}}}",
		"a topology of zeros":            "spec: {vm: {maximumCpus: <remove>, currentCpus: 1, cpuTopology: {sockets: 0, diesPerSocket: 0}}}",
		"as much memory as possible":     "spec: {vm: {maximumRam: 16Ti, currentRam: 1Mi}}",
		"bytes":                          `spec: {vm: {maximumRam: "1048576", currentRam: 1024Ki}}`,
		"an exponent":                    `spec: {vm: {maximumRam: "1e10", currentRam: 1.5G}}`,
		"a time":                         `spec: {vm: {rtcBase: "2026-01-31T12:00:00", rtcClock: host}}`,
		"features of a CPU":              `spec: {vm: {cpuModel: "Skylake-Server-v2,-hle,+rtm,vmx=off"}}`,
		"ports":                          "spec: {vm: {display: {outputs: 16, spice: {port: 1024, usbRedirects: 0, streamingVideo: filter}}}}",
		"the last port":                  `spec: {vm: {display: {spice: {port: 65535, server: "fd00::1", generateSecret: false}}}}`,
		"a bridge of 15 characters":      `spec: {vm: {networks: [{tap: {bridge: a23456789012345, mac: "02:AB:cd:ef:00:00"}}]}}`,
		"a small network":                "spec: {vm: {networks: [{user: {net: 10.9.0.0/27, device: rtl8139}}]}}",
		"the network of the pod":         "spec: {vm: {networks: [{pod: {device: e1000}}]}}",
		"eight networks":                 "spec: {vm: {networks: [" + repeat("{tap: {}}", 8) + "]}}",
		"six drives":                     "spec: {vm: {disks: [" + repeat(`{cdrom: {image: ""}}`, 6) + "]}}",
		"a file in a directory":          "spec: {vm: {disks: [{cdrom: {image: debian/..13 net/x.iso}}]}}",
		"a URL with a query":             `spec: {vm: {disks: [{cdrom: {image: "https://images.example.org:8443/a/x.iso?v=1"}, bootindex: 0}]}}`,
		"a disk name of 53 characters":   "spec: {vm: {disks: [{volumeClaimTemplate: {metadata: {name: a2345678901234567890123456789012345678901234567890123}, spec: {resources: {requests: {storage: 1}}}}}]}}",
		"an existing volume":             `spec: {vm: {disks: [{volumeClaimTemplate: {spec: {storageClassName: "", volumeName: pv.1, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}}]}}`,
		"numbers as amounts":             "spec: {resources: {limits: {cpu: 2, memory: 4Gi, devices.example.org/kvm: 1}}}",
		"an image by digest":             "spec: {image: {source: 'registry.example.org:5000/vm/runner@sha256:0000'}}",
		"an image without a version":     "spec: {image: {repository: 'registry:5000/a', path: b_c/d}}",
		"data of Secrets":                "spec: {cloudInit: {userDataFrom: {secretKeyRef: {name: a, key: user-data}}, networkConfigFrom: {secretKeyRef: {name: a, key: network-config}}}}",
		"arguments":                      `spec: {vm: {extraArgs: ["-device", "virtio-rng-pci"], machineType: pc-q35-10.0, acceleration: tcg}}`,
		"weights":                        "spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}, {weight: 100, preference: {}}]}}}",
		"more than a name for the claim": "spec: {vm: {disks: [{volumeClaimTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {resources: {requests: {storage: 1Gi}}}}}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			created := crd.Load(t, "minimal", change)
			if err := server.Create(context.Background(), created, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEmptyIsNotLeftOut: the difference survives the way through Go.
func TestEmptyIsNotLeftOut(t *testing.T) {
	created := server.Store(t, crd.Load(t, "minimal", "spec: {loadBalancerService: {}, cloudInit: {}, vm: {networks: [], display: {}}}"))
	var object vmv1.VirtualMachine
	if err := server.Get(context.Background(), client.ObjectKeyFromObject(created), &object); err != nil {
		t.Fatal(err)
	}
	if object.Spec.VM.Networks == nil || object.Spec.LoadBalancerService == nil || object.Spec.CloudInit == nil {
		t.Errorf("what is empty got lost: %+v", object.Spec)
	}
	if object.Spec.VM.Display == nil || object.Spec.VM.Display.SPICE != nil {
		t.Errorf("a display without SPICE became %+v", object.Spec.VM.Display)
	}
	if err := server.Update(context.Background(), &object); err != nil {
		t.Fatal(err)
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(created.GroupVersionKind())
	if err := server.Get(context.Background(), client.ObjectKeyFromObject(created), stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(created.Object["spec"], stored.Object["spec"]); diff != "" {
		t.Errorf("the spec changed on its way through Go (-want +got):\n%s", diff)
	}
}

// TestFieldsOfAnyForm keep their content, null in maps included.
func TestFieldsOfAnyForm(t *testing.T) {
	created := server.Store(t, crd.Load(t, "full"))
	var object vmv1.VirtualMachine
	if err := server.Get(context.Background(), client.ObjectKeyFromObject(created), &object); err != nil {
		t.Fatal(err)
	}
	annotations := object.Spec.LoadBalancerService.Annotations
	if value, ok := annotations["lb.example/shared"]; !ok || value != nil || *annotations["lb.example/pool"] != "consoles" {
		t.Errorf("the annotations became %v", annotations)
	}
	const want = `{"users":[{"name":"op","ssh_authorized_keys":["ssh-ed25519 AAAA..."]}]}`
	if got := string(object.Spec.CloudInit.UserData.Raw); got != want {
		t.Errorf("the user data became %s, want %s", got, want)
	}
	list := vmv1.List(object.Spec.Resources.Requests)
	if list.Cpu().String() != "1" || list.Memory().String() != "3Gi" || len(list) != 2 || vmv1.List(nil) != nil {
		t.Errorf("the requests became %v", list)
	}
}

// TestTheLargestMachineIsAffordable creates and updates an object with as many entries as the schema allows. The API
// server gives up on an object whose rules cost too much.
func TestTheLargestMachineIsAffordable(t *testing.T) {
	var disks, weights []any
	for i := range 14 {
		disks = append(disks, crd.Parse(t, fmt.Sprintf("{bootindex: %d, volumeClaimTemplate: {metadata: {name: disk-with-a-name-of-fifty-three-characters-abcdefg-%02d}, spec: {resources: {requests: {storage: 999999999999999999.999999999Ki}}}}}", i, i)))
	}
	for i := range 6 {
		disks = append(disks, crd.Parse(t, fmt.Sprintf("{bootindex: %d, cdrom: {image: 'https://images.example.org/of/some/depth/%d.iso'}}", 100+i, i)))
	}
	for range 1000 {
		weights = append(weights, crd.Parse(t, "{weight: 1, preference: {}}"))
	}
	largest := crd.Load(t, "full")
	crd.Merge(largest.Object, map[string]any{"spec": map[string]any{
		"affinity": map[string]any{"nodeAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": weights}},
		"vm":       map[string]any{"disks": disks},
	}})
	created := server.Store(t, largest)
	crd.Merge(created.Object, crd.Parse(t, "spec: {vm: {state: Stopped}}"))
	if err := server.Update(context.Background(), created, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestAmountsThatAreAcceptedDecode: the API server lists all objects of a kind at once, so a single one that Go cannot
// decode hides all others.
func TestAmountsThatAreAcceptedDecode(t *testing.T) {
	accepted := 0
	for _, amount := range []string{
		`0`, `1`, `-1`, `1.5`, `1e3`, `9223372036854775808`, `""`, `"1"`, `"1."`, `".5"`, `"1.5"`, `"+1"`, `"1k"`, `"1K"`, `"1Ki"`, `"1mi"`, `"1m"`, `"1u"`, `"1n"`, `"1e3"`, `"1E99"`,
		`"1e1.5"`, `"1e+3"`, `"1e-3"`, `"1e999"`, `"999999999999999999.999999999Ei"`, `"1 Gi"`, `"1Gi\n"`, `"0x10"`, `"1_000"`, `null`, `true`, `{}`,
	} {
		object := crd.Load(t, "minimal", "spec: {resources: {limits: {memory: "+amount+"}}}")
		if server.Create(context.Background(), object, client.DryRunAll) != nil {
			continue
		}
		accepted++
		var decoded vmv1.VirtualMachine
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &decoded); err != nil {
			t.Errorf("%s is accepted and cannot be decoded: %v", amount, err)
		}
	}
	if accepted < 8 {
		t.Errorf("only %d amounts were accepted", accepted)
	}
}
