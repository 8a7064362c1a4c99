package fuzz_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	vmcontroller "github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// hostileObjects is how many VirtualMachines are tried, and hostile is what they have in their fields.
const hostileObjects = 1500

var hostile = []any{
	"x,romfile=/etc/shadow", "x\n-drive file=/etc/shadow", "-S", "../../etc/shadow", "/etc/shadow", `json:{"driver":"file"}`, "nbd://192.0.2.1", "%s%n",
	"$(MACHINE)", "`reboot`", "é☃", "", " ", "x=y", strings.Repeat("a", 300), "a", "1", "9Ei", "-1", "http://192.0.2.1/a.iso", "a.iso", "registry.example/evil:1",
	int64(-1), int64(0), int64(1), int64(3), int64(65536), int64(1 << 40), true, false, nil, []any{}, map[string]any{},
}

// TestHostileVirtualMachines: the API server refuses a VirtualMachine, or the operator renders objects whose pod runs the
// operator's image without a directory of its host, and whose runner can read its machine. The API server accepts these
// objects, but for names of labels, annotations and resources, and affinity, which no rule of a definition can check at a
// bounded cost.
func TestHostileVirtualMachines(t *testing.T) {
	text, err := os.ReadFile("../../../docs/examples/virtualmachine-full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var full map[string]any
	if err := yaml.Unmarshal(text, &full); err != nil {
		t.Fatal(err)
	}
	add(t, full["spec"], `
nodeName: node-1
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 10, podAffinityTerm: {topologyKey: zone, namespaces: [default], labelSelector: {matchLabels: {tier: gold}}}}
`)
	vm, _ := lookup(full, []any{"spec", "vm"})
	add(t, vm, `
machineType: q35
networks: [{user: {net: 10.9.0.0/24, device: e1000}}]
disks:
- volumeClaimTemplate:
    metadata: {name: system, annotations: {note: root}}
    spec:
      storageClassName: fast
      volumeAttributesClassName: gold
      volumeName: volume-1
      accessModes: [ReadWriteOnce]
      selector: {matchLabels: {tier: gold}, matchExpressions: [{key: zone, operator: In, values: [a]}]}
      dataSourceRef: {apiGroup: cdi.example.org, kind: DataVolume, name: debian}
      resources: {requests: {storage: 40Gi}, limits: {storage: 50Gi}}
- cdrom: {image: install.iso}
`)
	settings := virtualmachine.Settings{
		RunnerImage: "runner.example/vm:1", AllowEmulation: true, ImageRepository: "images", LoadBalancer: &virtualmachine.LoadBalancer{},
	}
	random := rand.New(rand.NewPCG(3, 4))
	accepted := 0
	for range hostileObjects {
		object := runtime.DeepCopyJSON(full)
		for range 1 + random.IntN(3) {
			corrupt(object["spec"], random)
		}
		u := &unstructured.Unstructured{Object: object}
		u.SetResourceVersion("")
		err := theLab.Client.Create(t.Context(), u, client.DryRunAll)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			continue
		}
		if err != nil {
			t.Fatalf("neither accepted nor refused as invalid: %v", err)
		}
		accepted++
		vm := &v1.VirtualMachine{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, vm); err != nil {
			t.Fatalf("the operator cannot read what the API server accepted: %v\n%s", err, asText(t, u.Object["spec"]))
		}
		checkRendered(t, settings, vm)
	}
	t.Logf("%d of %d VirtualMachines are accepted", accepted, hostileObjects)
	if accepted < hostileObjects/20 || accepted == hostileObjects {
		t.Error("too few or too many are accepted for this to prove something")
	}
}

// corrupt gives a field somewhere in a value a hostile value.
func corrupt(value any, random *rand.Rand) {
	switch v := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if len(keys) == 0 {
			return
		}
		key := keys[random.IntN(len(keys))]
		switch text, isText := hostile[random.IntN(len(hostile))].(string); {
		case isText && random.IntN(20) == 0:
			v[text] = v[key]
			return
		case isLeaf(v[key]) || random.IntN(10) == 0:
			v[key] = runtime.DeepCopyJSONValue(hostile[random.IntN(len(hostile))])
			return
		}
		corrupt(v[key], random)
	case []any:
		if len(v) > 0 {
			corrupt(v[random.IntN(len(v))], random)
		}
	}
}

// add adds fields, in YAML, to an object.
func add(t *testing.T, object any, fields string) {
	t.Helper()
	var added map[string]any
	if err := yaml.Unmarshal([]byte(fields), &added); err != nil {
		t.Fatal(err)
	}
	maps.Copy(object.(map[string]any), added)
}

func isLeaf(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// checkRendered checks what the operator makes of a VirtualMachine.
func checkRendered(t *testing.T, settings virtualmachine.Settings, vm *v1.VirtualMachine) {
	t.Helper()
	rendered, err := vmcontroller.Render(settings, vm, vmcontroller.Inputs{})
	if err != nil {
		t.Logf("the declaration is not accepted: %v", err)
	}
	sets := 0
	for _, r := range rendered {
		for _, object := range r.Objects {
			copied := object.DeepCopyObject().(client.Object)
			if err := theLab.Client.Create(t.Context(), copied, client.DryRunAll); err != nil {
				if !onlyUnchecked(err) {
					t.Errorf("the API server refuses %T: %v\n%s", object, err, asText(t, vm.Spec))
				}
			}
			if set, ok := object.(*appsv1.StatefulSet); ok {
				sets++
				checkPod(t, settings, vm, set.Spec.Template.Spec)
			}
		}
	}
	if sets != 1 {
		t.Errorf("there are %d StatefulSets for\n%s", sets, asText(t, vm.Spec))
	}
}

// unchecked are the fields that only the API server checks, in the object that they are copied to.
var unchecked = []string{"spec.template.spec.affinity.", "spec.template.spec.nodeSelector", "spec.template.spec.containers[0].resources.", "metadata.labels", "metadata.annotations"}

// onlyUnchecked returns whether an error is about such fields alone.
func onlyUnchecked(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if isValue := strings.Contains(cause.Message, "a valid label must be"); isValue || !slices.ContainsFunc(unchecked, func(field string) bool { return strings.HasPrefix(cause.Field, field) }) {
			return false
		}
	}
	return true
}

func checkPod(t *testing.T, settings virtualmachine.Settings, vm *v1.VirtualMachine, pod corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	if len(pod.Containers)+len(pod.InitContainers) != 1 || c.Image != settings.RunnerImage || c.Command != nil || !slices.Equal(c.Args, []string{"runner", "vm"}) || pod.HostPID || pod.HostIPC {
		t.Errorf("the pod runs something else: %+v\n%s", c, asText(t, vm.Spec))
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			t.Errorf("the pod has the path %s of its host\n%s", volume.HostPath.Path, asText(t, vm.Spec))
		}
	}
	if strings.Contains(strings.ReplaceAll(c.Env[0].Value, "$$", ""), "$") {
		t.Errorf("the kubelet may replace a variable in %s\n%s", c.Env[0].Value, asText(t, vm.Spec))
	}
	// The kubelet replaces $$ and variables that exist.
	machine, err := vmconfig.Decode(strings.ReplaceAll(c.Env[0].Value, "$$", "$"))
	if err != nil || machine.Name != vm.Name || machine.ExtraArgs != nil {
		t.Errorf("the runner cannot read its machine: %v\n%s\n%s", err, c.Env[0].Value, asText(t, vm.Spec))
	}
}

func asText(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
