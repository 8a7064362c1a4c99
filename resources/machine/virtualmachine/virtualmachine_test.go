package virtualmachine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/virtualmachine"
)

func observed(template string, kv vitistack.KubeVirt) vitistack.Observed {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a", UID: "u"}}
	m.Spec = v1alpha1.MachineSpec{Template: template, Disks: []v1alpha1.Disk{{Name: "root", Source: &v1alpha1.DiskSource{ContainerDisk: &v1alpha1.ContainerDisk{Image: "a"}}}}}
	return vitistack.Observed{Machine: m, KubeVirt: kv, Settings: vitistack.Settings{ManagedBy: "m"}}
}

// cluster returns an engine, and the client that it writes with.
func cluster(t *testing.T, objects ...client.Object) (*apply.Engine, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kubevirtv1.VirtualMachineGroupVersionKind, meta.RESTScopeNamespace)
	mapper.Add(kubevirtv1.VirtualMachineInstanceGroupVersionKind, meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).
		WithIndex(&kubevirtv1.VirtualMachine{}, apply.IndexOwner, apply.OwnerOf).Build()
	return apply.New(c, c, clock.RealClock{}), c
}

// instance returns the guest of a VirtualMachine of that name.
func instance(machine string) *kubevirtv1.VirtualMachineInstance {
	return &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a", Labels: map[string]string{v1alpha1.LabelMachine: machine}}}
}

// TestWithoutKubeVirt: nothing is written, a Machine reports why, and its deletion ends.
func TestWithoutKubeVirt(t *testing.T) {
	pending := chain.Wait(v1alpha1.ReasonPending, "it is not known yet whether KubeVirt is installed and has a VirtualMachine of this name", 30*time.Second)
	for name, test := range map[string]struct {
		observed         vitistack.Observed
		created, deleted chain.Outcome
		problem          string
	}{
		"not installed":                        {observed("small", vitistack.Absent), chain.Outcome{}, chain.Done(), v1alpha1.KubeVirtAPIError},
		"not installed, and a problem":         {observed("huge", vitistack.Absent), chain.Outcome{}, chain.Done(), v1alpha1.TemplateNotFound},
		"unknown":                              {observed("small", vitistack.Unknown), pending, pending, ""},
		"installed, and its session has ended": {observed("small", vitistack.Installed), pending, pending, ""},
	} {
		s := vitistack.Plan(test.observed)
		h := virtualmachine.New(func(*vitistack.State) *apply.Engine { return nil })
		created, err := h.EnsureCreated(t.Context(), s)
		deleted, deleteErr := h.EnsureDeleted(t.Context(), s)
		reason := ""
		if p, ok := problem.As(err); ok {
			reason = p.Reason
		}
		if diff := cmp.Diff([]any{test.created, test.deleted, test.problem}, []any{created, deleted, reason}); diff != "" || deleteErr != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", name, deleteErr, diff)
		}
	}
}

// TestLifeOfAVirtualMachine: created, and deleted with its guest.
func TestLifeOfAVirtualMachine(t *testing.T) {
	engine, c := cluster(t)
	h := virtualmachine.New(func(*vitistack.State) *apply.Engine { return engine })
	o := observed("small", vitistack.Installed)
	got, err := h.EnsureCreated(t.Context(), vitistack.Plan(o))
	if err != nil || got.State != chain.StateDone || got.Reason != v1alpha1.ReasonVMCreated {
		t.Fatalf("%+v, %v", got, err)
	}
	vm := &kubevirtv1.VirtualMachine{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "a"}, vm); err != nil {
		t.Fatal(err)
	}
	o.VM, o.VMI = vm, instance("a")
	got, err = h.EnsureDeleted(t.Context(), vitistack.Plan(o))
	want := chain.Wait("Deleting", "waits until gone: VirtualMachineInstance ci/a", 30*time.Second)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("beside the guest: error %v (-want +got):\n%s", err, diff)
	}
	o.VM, o.VMI = nil, nil
	got, err = h.EnsureDeleted(t.Context(), vitistack.Plan(o))
	if diff := cmp.Diff(chain.Done(), got); diff != "" || err != nil {
		t.Errorf("without it: error %v (-want +got):\n%s", err, diff)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "a"}, vm); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the VirtualMachine is still there (%v)", err)
	}
}

// TestWhatRemains: a VirtualMachine that was never adopted, and a guest that nothing else deletes, go with the Machine.
func TestWhatRemains(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ci", Name: "a", UID: "1", Labels: map[string]string{v1alpha1.LabelManagedBy: "m", v1alpha1.LabelSourceMachine: "a"}}
	vm, orphan := &kubevirtv1.VirtualMachine{ObjectMeta: meta}, &kubevirtv1.VirtualMachineInstance{ObjectMeta: meta}
	forged := vm.DeepCopy()
	forged.Annotations = map[string]string{ownership.Annotation: "Machine.vitistack.io/ci/a/else"}
	controlled, strange, another := orphan.DeepCopy(), orphan.DeepCopy(), orphan.DeepCopy()
	controlled.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)}
	strange.Labels = map[string]string{v1alpha1.LabelSourceMachine: "a"}
	another.Labels = map[string]string{v1alpha1.LabelManagedBy: "m", v1alpha1.LabelSourceMachine: "b"}
	for name, test := range map[string]struct {
		vm          *kubevirtv1.VirtualMachine
		vmi         *kubevirtv1.VirtualMachineInstance
		waits, stay bool
	}{
		"a VirtualMachine of vitistack's operator":   {vm, nil, true, false},
		"one that names another part as its owner":   {forged, nil, false, true},
		"an orphaned guest":                          {nil, orphan, true, false},
		"a guest whose VirtualMachine was just gone": {nil, controlled, true, true},
		"a guest of a stranger with the label":       {nil, strange, true, true},
		"a guest of another Machine":                 {nil, another, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed("huge", vitistack.Installed)
			o.VM, o.VMI = test.vm, test.vmi
			var object client.Object = test.vmi
			if test.vm != nil {
				object = test.vm
			}
			engine, c := cluster(t, object.DeepCopyObject().(client.Object))
			got, err := virtualmachine.New(func(*vitistack.State) *apply.Engine { return engine }).EnsureDeleted(t.Context(), vitistack.Plan(o))
			if err != nil || (got.State != chain.StateDone) != test.waits {
				t.Errorf("%+v, %v", got, err)
			}
			err = c.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
			if client.IgnoreNotFound(err) != nil || (err == nil) != test.stay {
				t.Errorf("it stays: %t (%v)", err == nil, err)
			}
		})
	}
}

// TestForeignObjectsAreLeftAlone, also on deletion.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	foreign := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a", Labels: map[string]string{"x": "y"}}}
	engine, c := cluster(t, foreign)
	h := virtualmachine.New(func(*vitistack.State) *apply.Engine { return engine })
	for name, vmi := range map[string]*kubevirtv1.VirtualMachineInstance{"its guest": instance(""), "one that has the label": instance("a"), "none": nil} {
		o := observed("small", vitistack.Installed)
		o.VM, o.VMI = foreign, vmi
		s := vitistack.Plan(o)
		_, err := h.EnsureCreated(t.Context(), s)
		if p, ok := problem.As(err); !ok || p.Reason != v1alpha1.NameConflict {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := h.EnsureDeleted(t.Context(), s); err != nil || got.State != chain.StateDone {
			t.Errorf("%s: deletion says %+v, %v", name, got, err)
		}
	}
	// The cache may be behind: the engine refuses, too.
	if _, err := h.EnsureCreated(t.Context(), vitistack.Plan(observed("small", vitistack.Installed))); err == nil {
		t.Error("a foreign VirtualMachine is taken over")
	}
	left := &kubevirtv1.VirtualMachine{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), left); err != nil || len(left.Annotations) > 0 || len(left.Labels) != 1 || left.Spec.Template != nil {
		t.Errorf("it was changed: %+v (%v)", left.ObjectMeta, err)
	}
}

// TestBootDataOutlivesItsSource: a VirtualMachine whose data is gone where it came from is changed as before.
func TestBootDataOutlivesItsSource(t *testing.T) {
	for name, data := range map[string]v1alpha1.CloudInit{
		"user data":         {SecretRef: &v1alpha1.DataReference{Name: "boot"}},
		"both":              {SecretRef: &v1alpha1.DataReference{Name: "boot"}, NetworkDataSecretRef: &v1alpha1.DataReference{Name: "boot"}},
		"on a config drive": {Type: "configDrive", SecretRef: &v1alpha1.DataReference{Name: "boot"}},
	} {
		build := func(template string, sources map[vitistack.Source][]byte, live *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachine {
			o := observed(template, vitistack.Installed)
			o.Machine.Spec.CloudInit, o.Sources, o.VM = &data, sources, live
			desired, err := virtualmachine.Resource().Build(vitistack.Plan(o))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return desired.Objects[0].(*kubevirtv1.VirtualMachine)
		}
		sources := map[vitistack.Source][]byte{{Name: "boot", Key: vitistack.UserDataKey}: []byte("u"), {Name: "boot", Key: vitistack.NetworkDataKey}: []byte("n")}
		live := build("small", sources, nil)
		if diff := cmp.Diff(build("large", sources, live), build("large", nil, live)); diff != "" {
			t.Errorf("%s: without its source it becomes another one (-with +without):\n%s", name, diff)
		}
	}
}
