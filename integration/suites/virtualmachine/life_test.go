package virtualmachine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// TestLifeOfAVirtualMachine: the objects that VM-Operator's documentation promises exist under their names, the pod
// follows spec.vm.state, a change of a running machine waits for its next start, and disks outlive the machine.
func TestLifeOfAVirtualMachine(t *testing.T) {
	serve(t)
	vm := machine("test-vm")
	theLab.Create(t, volume("test-vm-system"))
	theLab.Create(t, vm)

	await(t, vm, "stopped at first", func() error {
		return all(phaseIs(t, vm, v1.PhaseStopped), replicasAre(t, vm, 0), isTrue(t, vm, "Ready"))
	})
	if theLab.Exists(t, podOf(vm)) {
		t.Error("a stopped machine has a pod")
	}

	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateRunning })
	await(t, vm, "running", func() error {
		return all(phaseIs(t, vm, v1.PhaseRunning), isTrue(t, vm, "Ready"), isTrue(t, vm, "Running"))
	})
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "system-disk-test-vm-0"}}
	theLab.Get(t, claim)
	labels := map[string]string{"app.kubernetes.io/name": "vm-runner", "app.kubernetes.io/instance": "test-vm", "app.kubernetes.io/managed-by": "vm-operator"}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != "test-vm-system" || !maps.Equal(claim.Labels, labels) {
		t.Errorf("claim %s is %s to %q with labels %v", claim.Name, claim.Status.Phase, claim.Spec.VolumeName, claim.Labels)
	}
	pod := podOf(vm)
	theLab.Get(t, pod)
	if devices := pod.Spec.Containers[0].VolumeDevices; !slices.Contains(devices, corev1.VolumeDevice{Name: "system-disk", DevicePath: "/dev/system-disk"}) {
		t.Errorf("the pod has the devices %v", devices)
	}

	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) {
		vm.Spec.VM.MaximumRAM = "2Gi"
		vm.Spec.VM.Disks = append(vm.Spec.VM.Disks, v1.Disk{VolumeClaimTemplate: &v1.VolumeClaimTemplate{Spec: v1.ClaimSpec{StorageClassName: ptr.To(""), VolumeMode: "Block", Resources: oneGiB(), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "test-vm-more"}}}}})
	})
	await(t, vm, "in need of a restart", func() error { return isTrue(t, vm, "RestartRequired") })
	again := podOf(vm)
	if theLab.Get(t, again); again.UID != pod.UID {
		t.Error("the pod was replaced because of a change")
	}

	theLab.Create(t, volume("test-vm-more"))
	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateStopped })
	await(t, vm, "stopped", func() error {
		return all(phaseIs(t, vm, v1.PhaseStopped), replicasAre(t, vm, 0), claimTemplatesAre(t, vm, "system-disk", "disk-1"))
	})
	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateRunning })
	await(t, vm, "running with another disk", func() error { return all(phaseIs(t, vm, v1.PhaseRunning), isTrue(t, vm, "DisksBound")) })
	if c := meta.FindStatusCondition(current(t, vm).Status.Conditions, "RestartRequired"); c != nil {
		t.Errorf("after a restart: %+v", c)
	}

	theLab.Delete(t, vm)
	lab.Eventually(t, lab.Timeout, func() error {
		for _, object := range []client.Object{podOf(vm), setOf(vm), &corev1.ConfigMap{ObjectMeta: setOf(vm).ObjectMeta}} {
			if theLab.Exists(t, object) {
				return fmt.Errorf("%T %s is there", object, object.GetName())
			}
		}
		return nil
	})
	theLab.Get(t, claim)
}

// TestGuestThatShutsItselfDown: the machine starts again in a new pod, or is declared stopped while its pod still
// exists.
func TestGuestThatShutsItselfDown(t *testing.T) {
	serve(t)
	for name, stops := range map[string]bool{"comes-back": false, "stays-down": true} {
		t.Run(name, func(t *testing.T) {
			vm := machine(name)
			vm.Spec.VM.State, vm.Spec.GuestShutdownStops, vm.Spec.VM.Disks = v1.StateRunning, stops, nil
			theLab.Create(t, vm)
			await(t, vm, "running", func() error { return phaseIs(t, vm, v1.PhaseRunning) })
			pod := podOf(vm)
			theLab.Get(t, pod)
			shutDown(t, pod)
			if stops {
				await(t, vm, "stopped", func() error {
					return all(stateIs(t, vm, v1.StateStopped), phaseIs(t, vm, v1.PhaseStopped), replicasAre(t, vm, 0))
				})
				return
			}
			await(t, vm, "running in another pod", func() error {
				return all(replaced(t, vm, pod.UID), phaseIs(t, vm, v1.PhaseRunning), stateIs(t, vm, v1.StateRunning))
			})
		})
	}
}

// TestObjectsOfOthersAreLeftAlone: a StatefulSet of the same name is neither changed nor deleted, and its pod counts for
// nothing.
func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	serve(t)
	vm := machine("taken")
	vm.Spec.VM.State = v1.StateRunning
	foreign := setOf(vm)
	labels := map[string]string{"of": "others"}
	foreign.Labels = virtualmachine.Labels(vm.Name) // with it, the operator sees the StatefulSet
	foreign.Spec = appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "taken", Image: "x"}}}},
	}
	theLab.Create(t, foreign)
	theLab.Create(t, vm)
	await(t, vm, "told", func() error {
		c := meta.FindStatusCondition(current(t, vm).Status.Conditions, "ObjectsReady")
		if c == nil || c.Reason != "NotOwned" {
			return fmt.Errorf("the condition is %+v", c)
		}
		return phaseIs(t, vm, v1.PhaseStarting)
	})
	theLab.Delete(t, vm)
	time.Sleep(time.Second) // long enough for a deletion
	theLab.Get(t, foreign)
	if !maps.Equal(foreign.Spec.Selector.MatchLabels, labels) || len(foreign.OwnerReferences) > 0 {
		t.Errorf("the StatefulSet of others was changed: %+v", foreign)
	}
}

// TestDisksSurviveOtherDisks: with diskRetention Delete, claims belong to the StatefulSet. When the machine gets another
// disk, the StatefulSet is recreated, and the claims stay. When they are to be retained after all, they are.
func TestDisksSurviveOtherDisks(t *testing.T) {
	serve(t)
	vm := machine("kept")
	vm.Spec.VM.State, vm.Spec.DiskRetention = v1.StateRunning, v1.DiskRetentionDelete
	theLab.Create(t, volume("kept-system"))
	theLab.Create(t, vm)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "system-disk-kept-0"}}
	await(t, vm, "running with a claim of its StatefulSet", func() error {
		if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if len(claim.OwnerReferences) == 0 {
			return errors.New("its claim has no owner")
		}
		return phaseIs(t, vm, v1.PhaseRunning)
	})
	stop := func(what string, change func(*v1.VirtualMachine), is func() error) {
		lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateStopped; change(vm) })
		await(t, vm, what, func() error { return all(phaseIs(t, vm, v1.PhaseStopped), is()) })
		time.Sleep(3 * time.Second) // long enough for the garbage collector
		uid := claim.UID
		if theLab.Get(t, claim); claim.UID != uid || claim.DeletionTimestamp != nil {
			t.Fatalf("%s: the claim is gone, or goes: %+v", what, claim.ObjectMeta)
		}
	}
	stop("stopped with another disk", func(vm *v1.VirtualMachine) {
		vm.Spec.VM.Disks = append(vm.Spec.VM.Disks, v1.Disk{VolumeClaimTemplate: &v1.VolumeClaimTemplate{Spec: v1.ClaimSpec{StorageClassName: ptr.To(""), VolumeMode: "Block", Resources: oneGiB()}}})
	}, func() error { return claimTemplatesAre(t, vm, "system-disk", "disk-1") })
	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) {
		vm.Spec.VM.State, vm.Spec.VM.Disks = v1.StateRunning, vm.Spec.VM.Disks[:1]
	})
	await(t, vm, "running again", func() error { return phaseIs(t, vm, v1.PhaseRunning) })
	stop("stopped with its disks retained", func(vm *v1.VirtualMachine) { vm.Spec.DiskRetention = v1.DiskRetentionRetain }, func() error {
		if theLab.Get(t, claim); len(claim.OwnerReferences) > 0 {
			return errors.New("its claim has an owner")
		}
		return nil
	})
	theLab.Delete(t, vm)
	theLab.AwaitGone(t, setOf(vm))
	theLab.Get(t, claim)
}

// TestQuietMachineCostsNoWrite: nothing that the operator writes makes it write again.
func TestQuietMachineCostsNoWrite(t *testing.T) {
	serve(t)
	for _, policy := range []v1.InstanceIDPolicy{v1.InstanceIDOnDataChange, v1.InstanceIDPerResourceVersion} {
		vm := machine("quiet-" + strings.ToLower(string(policy)))
		vm.Spec.VM.Disks, vm.Spec.CloudInit = nil, &v1.CloudInit{InstanceIDPolicy: policy}
		theLab.Create(t, vm)
		await(t, vm, "stopped", func() error {
			return all(phaseIs(t, vm, v1.PhaseStopped), isTrue(t, vm, "Ready"), instanceIsTold(t, vm))
		})
		before := current(t, vm).ResourceVersion
		time.Sleep(2 * time.Second)
		if after := current(t, vm).ResourceVersion; after != before {
			t.Errorf("policy %s: the machine is written at rest: version %s, then %s", policy, before, after)
		}
	}
}

func instanceIsTold(t *testing.T, vm *v1.VirtualMachine) error {
	t.Helper()
	if current(t, vm).Status.InstanceID == "" {
		return errors.New("its status has no instance-id")
	}
	return nil
}

// TestPodsLeaveTheNetworkOfTheHost that VM-Operator gives to all of them: in it, a guest behind its pod would reach the
// loopback address of the node.
func TestPodsLeaveTheNetworkOfTheHost(t *testing.T) {
	serve(t)
	vm := machine("former-vm")
	theLab.Create(t, volume("former-vm-system"))
	theLab.Create(t, vm)
	await(t, vm, "stopped", func() error { return all(phaseIs(t, vm, v1.PhaseStopped), replicasAre(t, vm, 0)) })
	set := setOf(vm)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"spec":{"hostNetwork":true}}}}`))
	if err := theLab.Client.Patch(t.Context(), set, patch, client.FieldOwner("org.jdrupes.vm.operator")); err != nil || !set.Spec.Template.Spec.HostNetwork {
		t.Fatalf("the network of the host: %t, %v", set.Spec.Template.Spec.HostNetwork, err)
	}
	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.MaximumRAM = "2Gi" })
	await(t, vm, "changed", func() error {
		theLab.Get(t, set)
		if spec := set.Spec.Template.Spec; spec.HostNetwork || !strings.Contains(spec.Containers[0].Env[0].Value, `"maximumRam":2147483648`) {
			return fmt.Errorf("the pods will be in the network of the host: %t, with %s", spec.HostNetwork, spec.Containers[0].Env[0].Value)
		}
		return nil
	})
}

// machine returns the example of VM-Operator's documentation: a disk on a volume that is selected by labels, and a CD
// drive.
func machine(name string) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: v1.VirtualMachineSpec{VM: v1.VM{
			MaximumCPUs: ptr.To[int32](4), CurrentCPUs: ptr.To[int32](2), MaximumRAM: "1Gi", Firmware: v1.FirmwareBIOS,
			Networks: []v1.Network{{User: &v1.UserNetwork{}}},
			Disks: []v1.Disk{{VolumeClaimTemplate: &v1.VolumeClaimTemplate{
				Metadata: &v1.ClaimMetadata{Name: ptr.To("system")},
				Spec: v1.ClaimSpec{
					StorageClassName: ptr.To(""), VolumeMode: "Block", Resources: oneGiB(),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"disk": name + "-system"}},
				},
			}}, {CDROM: &v1.CDROM{Image: ""}}},
		}},
	}
}

func oneGiB() *v1.Resources {
	return &v1.Resources{Requests: map[corev1.ResourceName]v1.Amount{corev1.ResourceStorage: {Quantity: resource.MustParse("1Gi")}}}
}

// volume returns a volume that a claim selects by its label.
func volume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": name}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/dev/none"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}
}

func setOf(vm *v1.VirtualMachine) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name}}
}

func podOf(vm *v1.VirtualMachine) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name + "-0"}}
}

func current(t *testing.T, vm *v1.VirtualMachine) *v1.VirtualMachine {
	t.Helper()
	now := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name}}
	theLab.Get(t, now)
	return now
}

// await waits until a virtual machine is as described.
func await(t *testing.T, vm *v1.VirtualMachine, what string, is func() error) {
	t.Helper()
	lab.Eventually(t, time.Minute, func() error {
		if err := is(); err != nil {
			return fmt.Errorf("%s is not %s: %w; its conditions are %+v", vm.Name, what, err, current(t, vm).Status.Conditions)
		}
		return nil
	})
}

func all(errs ...error) error { return errors.Join(errs...) }

func phaseIs(t *testing.T, vm *v1.VirtualMachine, want v1.Phase) error {
	t.Helper()
	if got := current(t, vm).Status.Phase; got != want {
		return fmt.Errorf("its phase is %q", got)
	}
	return nil
}

func stateIs(t *testing.T, vm *v1.VirtualMachine, want v1.State) error {
	t.Helper()
	if got := current(t, vm).Spec.VM.State; got != want {
		return fmt.Errorf("its state is %q", got)
	}
	return nil
}

func isTrue(t *testing.T, vm *v1.VirtualMachine, condition string) error {
	t.Helper()
	now := current(t, vm)
	if c := meta.FindStatusCondition(now.Status.Conditions, condition); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != now.Generation {
		return fmt.Errorf("%s is %+v", condition, c)
	}
	return nil
}

func replicasAre(t *testing.T, vm *v1.VirtualMachine, want int32) error {
	t.Helper()
	set := setOf(vm)
	if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		return err
	}
	if ptr.Deref(set.Spec.Replicas, -1) != want || set.Status.Replicas != want {
		return fmt.Errorf("it has %d replicas of %d", set.Status.Replicas, ptr.Deref(set.Spec.Replicas, -1))
	}
	return nil
}

func claimTemplatesAre(t *testing.T, vm *v1.VirtualMachine, want ...string) error {
	t.Helper()
	set := setOf(vm)
	if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		return err
	}
	var names []string
	for _, c := range set.Spec.VolumeClaimTemplates {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, want) {
		return fmt.Errorf("its claims are %v", names)
	}
	return nil
}

func replaced(t *testing.T, vm *v1.VirtualMachine, former types.UID) error {
	t.Helper()
	pod := podOf(vm)
	if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		return err
	}
	if pod.UID == former {
		return errors.New("its pod is the former one")
	}
	return nil
}

// shutDown plays a kubelet that has restarted the container of a runner whose guest shut itself down.
func shutDown(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	changed := pod.DeepCopy()
	now := metav1.Now()
	changed.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, RestartCount: 1,
		State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "GuestShutDown: the guest shut itself down\n"}},
	}}
	for i, c := range changed.Status.Conditions {
		if c.Type == corev1.ContainersReady || c.Type == corev1.PodReady {
			changed.Status.Conditions[i].Status, changed.Status.Conditions[i].LastTransitionTime = corev1.ConditionFalse, now
		}
	}
	if err := theLab.Client.Status().Patch(t.Context(), changed, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}
}
