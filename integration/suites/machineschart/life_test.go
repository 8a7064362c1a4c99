package machineschart_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/grants"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// elsewhere are the grants of which the audit log of this test has no request: an event that repeats, what some API servers
// check in the request that names an owner, and what is read only if a cache lacks it for a moment.
var elsewhere = map[grants.Grant]bool{
	{Verb: "patch", Group: "events.k8s.io", Resource: "events"}:                           true,
	{Verb: "get", Group: "cdi.kubevirt.io", Resource: "datavolumes"}:                      true,
	{Verb: "update", Group: "vitistack.io", Resource: "machines/finalizers"}:              true,
	{Verb: "update", Group: "vitistack.io", Resource: "networkconfigurations/finalizers"}: true,
}

// operator is one that runs as its container would.
type operator struct {
	metrics, probes string
	log             string
	stop            func()
}

// operate runs the operator with the variables of its container and with a token of its service account.
func (i installation) operate(t *testing.T) *operator {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: manager}}
	i.Get(t, deployment)
	container := deployment.Spec.Template.Spec.Containers[0]
	for _, v := range container.Env {
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			v.Value = namespace
		}
		t.Setenv(v.Name, v.Value)
	}
	o := &operator{metrics: loopback.FreeAddress(t), probes: loopback.FreeAddress(t), log: filepath.Join(t.TempDir(), "operator.log")}
	t.Setenv("KUBECONFIG", grants.Identity(t, i.Cluster, i.Client, namespace, deployment.Spec.Template.Spec.ServiceAccountName))
	t.Setenv("METRICS_BIND_ADDRESS", o.metrics)
	t.Setenv("HEALTH_PROBE_BIND_ADDRESS", o.probes)
	log, err := os.Create(o.log)
	if err != nil {
		t.Fatal(err)
	}
	command := cmd.Called(container.Command[0])
	command.SetOut(log)
	command.SetArgs(container.Args)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	o.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended with an error: %s", err)
		}
	})
	t.Cleanup(func() {
		o.stop()
		if text, err := os.ReadFile(o.log); t.Failed() {
			t.Logf("log of the operator (%v):\n%s", err, text)
		}
	})
	return o
}

// TestOperatorNeedsWhatTheChartGivesItAndNoMore: the operator runs with only the installed variables and permissions, and
// during the life of a Machine with all that it can have it uses every permission and lacks none. KubeVirt, CDI and
// Multus are there by their definitions: no guest runs.
func TestOperatorNeedsWhatTheChartGivesItAndNoMore(t *testing.T) {
	i := start(t)
	i.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	i.helm(t, "install", release, chart)
	o := i.operate(t)
	// Without KubeVirt it is ready.
	lab.Eventually(t, lab.Timeout, func() error { _, err := loopback.Get("http://" + o.probes + "/readyz"); return err })
	i.defineKubeVirt(t)
	i.lifeOfAMachine(t)
	i.lifeOfAnImport(t)
	i.metricsAreServed(t, o)
	o.stop()
	i.linesAreThoseOfThePage(t, o)
	grants.ExpectUse(t, i.Cluster, grants.User(namespace, manager), i.granted(t), elsewhere)
}

func (i installation) defineKubeVirt(t *testing.T) {
	t.Helper()
	all, err := definitions.KubeVirt(t.Context(), definitions.VirtualMachines, definitions.VirtualMachineInstances)
	if err != nil {
		t.Fatal(err)
	}
	imports, err := definitions.CDI()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range append(append(all, imports...), definitions.Multus()) {
		i.Create(t, definition)
	}
}

// lifeOfAnImport creates a Machine whose disk is to be imported, and deletes it.
func (i installation) lifeOfAnImport(t *testing.T) {
	t.Helper()
	source := &v1alpha1.DiskSource{HTTP: &v1alpha1.HTTPImage{URL: "https://images.example.com/debian.qcow2"}}
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "imported"},
		Spec:       v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", Source: source}}},
	}
	i.Create(t, m)
	dv := &unstructured.Unstructured{}
	dv.SetAPIVersion("cdi.kubevirt.io/v1beta1")
	dv.SetKind("DataVolume")
	dv.SetNamespace(m.Namespace)
	dv.SetName("imported-root")
	lab.Eventually(t, lab.Timeout, func() error { return i.Client.Get(t.Context(), client.ObjectKeyFromObject(dv), dv) })
	i.Delete(t, m)
	i.AwaitGone(t, m)
	i.AwaitGone(t, dv)
}

// lifeOfAMachine creates a Machine with a network, boot data and a disk, changes it, damages its objects, and deletes it.
func (i installation) lifeOfAMachine(t *testing.T) {
	t.Helper()
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	}
	i.Create(t, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "example.org/none", AllowVolumeExpansion: ptr.To(true),
	})
	i.Create(t, &corev1.Secret{ObjectMeta: at("boot"), StringData: map[string]string{"userdata": "#cloud-config"}})
	i.Create(t, &corev1.ConfigMap{ObjectMeta: at("net"), Data: map[string]string{"networkdata": "version: 2"}})
	front := &v1alpha1.NetworkConfiguration{ObjectMeta: at("front"), Spec: v1alpha1.NetworkConfigurationSpec{Bridge: "br0", VLAN: 7}}
	i.Create(t, front)
	m := &v1alpha1.Machine{ObjectMeta: at("whole"), Spec: v1alpha1.MachineSpec{
		Template: "small", Networks: []v1alpha1.Network{{Name: "eth0", NetworkName: "front"}},
		CloudInit: &v1alpha1.CloudInit{
			SecretRef: &v1alpha1.DataReference{Name: "boot"}, NetworkDataConfigMapRef: &v1alpha1.DataReference{Name: "net"},
		},
	}}
	i.Create(t, m)
	vm := &unstructured.Unstructured{}
	vm.SetAPIVersion("kubevirt.io/v1")
	vm.SetKind("VirtualMachine")
	vm.SetNamespace(m.Namespace)
	vm.SetName(m.Name)
	i.awaitField(t, vm, int64(1), "spec", "template", "spec", "domain", "cpu", "cores")
	lab.Change(t, i.Lab, m, func(m *v1alpha1.Machine) {
		m.Spec.Resources = v1alpha1.Resources{CPU: v1alpha1.CPU{Cores: 2}}
		m.Spec.Disks = []v1alpha1.Disk{{Name: "root", Size: "30Gi"}, {Name: "data", Size: "1Gi"}}
	})
	i.awaitField(t, vm, int64(2), "spec", "template", "spec", "domain", "cpu", "cores")
	i.Create(t, &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec:       v1alpha1.MachineClassSpec{Enabled: true, CPU: v1alpha1.MachineClassCPU{Cores: 3}, Memory: v1alpha1.MachineClassMemory{Quantity: "1Gi"}},
	})
	// An object without its labels is not in a cache. The operator finds that it exists, reads it and applies it.
	secret := &corev1.Secret{ObjectMeta: at("whole-cloudinit")}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: at("whole-data")}
	for _, object := range []client.Object{secret, claim, vm} {
		i.restoresLabels(t, object)
	}
	lab.Change(t, i.Lab, front, func(n *v1alpha1.NetworkConfiguration) { n.Spec.VLAN = 8 })
	// A guest without a VirtualMachine, as after kubectl delete --cascade=orphan, goes with the Machine.
	guest := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"domain": map[string]any{"devices": map[string]any{}}}}}
	guest.SetAPIVersion("kubevirt.io/v1")
	guest.SetKind("VirtualMachineInstance")
	guest.SetNamespace(vm.GetNamespace())
	guest.SetName(vm.GetName())
	guest.SetLabels(vm.GetLabels())
	i.Create(t, guest)
	i.Delete(t, m)
	i.AwaitGone(t, m)
	lab.Change(t, i.Lab, front, func(n *v1alpha1.NetworkConfiguration) { n.Spec.Bridge, n.Spec.VLAN = "", 0 })
	nad := &unstructured.Unstructured{}
	nad.SetAPIVersion("k8s.cni.cncf.io/v1")
	nad.SetKind("NetworkAttachmentDefinition")
	nad.SetNamespace(front.Namespace)
	nad.SetName(front.Name)
	i.AwaitGone(t, nad)
}

// restoresLabels waits until the labels of an object are back, after they were removed.
func (i installation) restoresLabels(t *testing.T, object client.Object) {
	t.Helper()
	i.Get(t, object)
	lab.Change(t, i.Lab, object, func(o client.Object) { o.SetLabels(nil) })
	lab.Eventually(t, lab.Timeout, func() error {
		if i.Get(t, object); object.GetLabels()[v1alpha1.LabelMachine] == "" {
			return fmt.Errorf("%s has the labels %v", object.GetName(), object.GetLabels())
		}
		return nil
	})
}

func (i installation) awaitField(t *testing.T, object *unstructured.Unstructured, want int64, path ...string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if got, _, err := unstructured.NestedInt64(object.Object, path...); err != nil || got != want {
			return errors.Join(err, fmt.Errorf("%v is %d, want %d", path, got, want))
		}
		return nil
	})
}

// metricsAreServed: the metrics of the page and those of controller-runtime are at the address of the variable.
func (i installation) metricsAreServed(t *testing.T, o *operator) {
	t.Helper()
	text, err := loopback.Get("http://" + o.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`kubevirt_operator_reconciliation_errors_total{controller="Machine",error_type="TemplateNotFound"} 0`,
		`kubevirt_operator_reconciliation_duration_seconds_count{controller="Machine"} `, "controller_runtime_reconcile_total{",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the metrics do not have %s", part)
		}
	}
}

// linesAreThoseOfThePage: every line is JSON with the keys that are always known, and those of passes name the Machine.
func (i installation) linesAreThoseOfThePage(t *testing.T, o *operator) {
	t.Helper()
	text, err := os.ReadFile(o.log)
	if err != nil {
		t.Fatal(err)
	}
	ofMachine := 0
	for line := range bytes.Lines(text) {
		content := map[string]any{}
		if err := json.Unmarshal(line, &content); err != nil {
			t.Fatalf("%s is no line of JSON: %s", line, err)
		}
		if content["timestamp"] == nil || content["level"] == nil || content["message"] == nil {
			t.Errorf("a key is missing: %s", line)
		}
		if content["controller"] == "Machine" && content["machine"] == "whole" && content["namespace"] == metav1.NamespaceDefault && content["phase"] != nil {
			ofMachine++
		}
	}
	if ofMachine == 0 {
		t.Error("no line is about the phase of the Machine")
	}
}
