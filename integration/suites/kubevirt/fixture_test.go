package kubevirt_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

// How long and how often a test looks for one change. Most take less than a second on an idle machine.
const (
	patience     = time.Minute
	pollInterval = 50 * time.Millisecond
)

// mac is that of the virtual machines of these tests.
const mac = "02:12:5e:01:9a:c4"

// machineYAML is a VirtualMachine as the operator writes it for a Machine with template medium and no networks, but for
// the owner.
const machineYAML = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: build-agent
  labels: &labels
    vitistack.io/managed-by: kubevirt-operator
    vitistack.io/machine: build-agent
    vitistack.io/source-machine: build-agent
    vitistack.io/machine-template: medium
spec:
  runStrategy: Always
  template:
    metadata:
      labels: *labels
    spec:
      domain:
        cpu: {cores: 2, threads: 1, sockets: 1}
        memory: {guest: 4Gi}
        devices:
          autoattachPodInterface: false
          networkInterfaceMultiqueue: true
          disks:
          - {name: root, disk: {bus: virtio}, bootOrder: 1}
          interfaces:
          - {name: default, model: virtio, macAddress: "` + mac + `", masquerade: {}}
      networks:
      - {name: default, pod: {}}
      volumes:
      - {name: root, persistentVolumeClaim: {claimName: build-agent-root}}
`

const claimYAML = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: build-agent-root
  labels: {vitistack.io/managed-by: kubevirt-operator, vitistack.io/machine: build-agent}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 40Gi}}
`

// place is a namespace of one test with its virtual machine. Their deletion is part of the test: it fails when something
// hangs.
type place struct {
	t         *testing.T
	namespace string
	machine   types.NamespacedName
}

func newPlace(t *testing.T) *place {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "machines-"}}
	if err := virt.Client().Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, namespace: namespace.Name}
	p.machine = types.NamespacedName{Namespace: p.namespace, Name: "build-agent"}
	t.Cleanup(p.leave)
	return p
}

// leave removes the virtual machine, and the namespace once it is gone: its deletion takes long while it has pods.
func (p *place) leave() {
	virt.Handler().Forget(p.machine)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(kubevirt.VirtualMachineKind)
	machine.SetNamespace(p.machine.Namespace)
	machine.SetName(p.machine.Name)
	if err := client.IgnoreNotFound(virt.Client().Delete(ctx, machine)); err != nil {
		p.t.Error(err)
	}
	if err := poll.Until(ctx, pollInterval, nil, p.gone); err != nil {
		p.t.Error(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	if err := virt.Client().Delete(ctx, namespace); err != nil {
		p.t.Error(err)
	}
}

// object decodes an object and puts it into the test's namespace. Each change is text in the form "path=YAML", such as
// "spec.runStrategy=Halted". An empty value removes the field.
func (p *place) object(text string, changes ...string) *unstructured.Unstructured {
	p.t.Helper()
	object := &unstructured.Unstructured{Object: decode(p.t, text).(map[string]any)}
	object.SetNamespace(p.namespace)
	for _, change := range changes {
		path, text, _ := strings.Cut(change, "=")
		fields := strings.Split(path, ".")
		if text == "" {
			unstructured.RemoveNestedField(object.Object, fields...)
			continue
		}
		if err := unstructured.SetNestedField(object.Object, decode(p.t, text), fields...); err != nil {
			p.t.Fatal(err)
		}
	}
	return object
}

// decode decodes YAML into what unstructured objects consist of. Their whole numbers are not floats.
func decode(t *testing.T, text string) any {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(encoded, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// create creates the claim and the virtual machine, with changes, and returns what the API server made of the latter.
func (p *place) create(changes ...string) *unstructured.Unstructured {
	p.t.Helper()
	machine := p.object(machineYAML, changes...)
	for _, object := range []*unstructured.Unstructured{p.object(claimYAML), machine} {
		if err := virt.Client().Create(p.t.Context(), object); err != nil {
			p.t.Fatal(err)
		}
	}
	return machine
}

// get reads the virtual machine or its instance.
func (p *place) get(ctx context.Context, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object, virt.Client().Get(ctx, p.machine, object)
}

// await waits until a field of the virtual machine or its instance has a value, and returns the object. A field of a
// list of conditions is written as "status.conditions[Ready]".
func (p *place) await(kind schema.GroupVersionKind, path string, want any) *unstructured.Unstructured {
	p.t.Helper()
	var last *unstructured.Unstructured
	p.eventually(func(ctx context.Context) (err error) {
		last, err = p.get(ctx, kind)
		if err != nil {
			return err
		}
		if got := field(last, path); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s of %s is %v, want %v; its status is %v", path, kind.Kind, got, want, last.Object["status"])
		}
		return nil
	})
	return last
}

// awaitStatus waits until the virtual machine shows a status.
func (p *place) awaitStatus(want string) *unstructured.Unstructured {
	p.t.Helper()
	return p.await(kubevirt.VirtualMachineKind, "status.printableStatus", want)
}

// gone returns nil when the virtual machine and its instance are gone.
func (p *place) gone(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{kubevirt.VirtualMachineKind, kubevirt.InstanceKind} {
		object, err := p.get(ctx, kind)
		if err == nil {
			return fmt.Errorf("the %s is still there: %v", kind.Kind, object.Object["status"])
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (p *place) eventually(try func(context.Context) error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := poll.Until(ctx, pollInterval, nil, try); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) delete() {
	p.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kubevirt.VirtualMachineKind)
	object.SetNamespace(p.machine.Namespace)
	object.SetName(p.machine.Name)
	if err := virt.Client().Delete(p.t.Context(), object); err != nil {
		p.t.Fatal(err)
	}
}

// field returns a field of an object, or the status of a condition, or nil.
func field(object *unstructured.Unstructured, path string) any {
	path, condition, _ := strings.Cut(strings.TrimSuffix(path, "]"), "[")
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
	if condition == "" {
		return value
	}
	conditions, _ := value.([]any)
	for _, item := range conditions {
		if fields, ok := item.(map[string]any); ok && fields["type"] == condition {
			return fields["status"]
		}
	}
	return nil
}

// missing returns the paths at which a stored object differs from what was sent. What the store adds does not count.
func missing(sent, stored any, path string) []string {
	switch sent := sent.(type) {
	case map[string]any:
		fields, _ := stored.(map[string]any)
		var paths []string
		for name, value := range sent {
			paths = append(paths, missing(value, fields[name], path+"."+name)...)
		}
		return paths
	case []any:
		items, _ := stored.([]any)
		if len(items) != len(sent) {
			return []string{path}
		}
		var paths []string
		for i, value := range sent {
			paths = append(paths, missing(value, items[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
		return paths
	default:
		if !reflect.DeepEqual(sent, stored) {
			return []string{fmt.Sprintf("%s: %v became %v", path, sent, stored)}
		}
		return nil
	}
}
