package virtualmachine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// machine returns a VirtualMachine with the API's defaults.
func machine(change func(*v1.VirtualMachine)) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "tiny", UID: "u-1", ResourceVersion: "7"},
		Spec: v1.VirtualMachineSpec{VM: v1.VM{
			State: v1.StateRunning, MaximumCPUs: ptr.To[int32](4), MaximumRAM: "1Gi", Firmware: v1.FirmwareUEFI, PowerdownTimeout: 900,
		}},
	}
	if change != nil {
		change(vm)
	}
	return vm
}

func disk(name string) v1.Disk {
	template := &v1.VolumeClaimTemplate{}
	if name != "" {
		template.Metadata = &v1.ClaimMetadata{Name: &name}
	}
	return v1.Disk{VolumeClaimTemplate: template}
}

func cd(image string) v1.Disk { return v1.Disk{CDROM: &v1.CDROM{Image: image}} }

// TestDiskNames: the number in a name counts claim templates, named ones included, and no CD drives.
func TestDiskNames(t *testing.T) {
	for name, test := range map[string]struct {
		disks        []v1.Disk
		names, claim string
	}{
		"none":                     {nil, "", ""},
		"the example":              {[]v1.Disk{disk("system"), cd("")}, "system-disk", "system-disk-tiny-0"},
		"without names":            {[]v1.Disk{disk(""), disk("")}, "disk-0 disk-1", "disk-0-tiny-0"},
		"drives and a named disk":  {[]v1.Disk{cd(""), cd(""), disk("system"), disk("")}, "system-disk disk-1", "system-disk-tiny-0"},
		"a name that looks like n": {[]v1.Disk{disk("disk-1"), disk("")}, "disk-1-disk disk-1", "disk-1-disk-tiny-0"},
	} {
		s := Plan(Observed{VM: machine(func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks = test.disks })})
		var names []string
		for _, d := range s.Disks {
			names = append(names, d.Name)
		}
		if got := strings.Join(names, " "); got != test.names || len(names) > 0 && s.Disks[0].Claim != test.claim {
			t.Errorf("%s: the disks are %q, want %q", name, got, test.names)
		}
	}
}

// TestMachine: what is left out has the defaults of the documentation.
func TestMachine(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1.VirtualMachine)
		cpus   int
		ram    int64
		nets   int
		uuid   string
	}{
		"defaults": {nil, 4, 1 << 30, 1, "u-1"},
		"less now": {func(vm *v1.VirtualMachine) {
			vm.Spec.VM.CurrentCPUs, vm.Spec.VM.CurrentRAM = ptr.To[int32](2), ptr.To("512Mi")
		}, 2, 512 << 20, 1, "u-1"},
		"no network": {func(vm *v1.VirtualMachine) { vm.Spec.VM.Networks = []v1.Network{} }, 4, 1 << 30, 0, "u-1"},
		"a UUID":     {func(vm *v1.VirtualMachine) { vm.Spec.VM.MachineUUID = ptr.To("x") }, 4, 1 << 30, 1, "x"},
		"odd size":   {func(vm *v1.VirtualMachine) { vm.Spec.VM.MaximumRAM = "1G" }, 4, 954 << 20, 1, "u-1"},
		"a topology": {func(vm *v1.VirtualMachine) {
			vm.Spec.VM.MaximumCPUs, vm.Spec.VM.CPUTopology = nil, &v1.CPUTopology{CoresPerDie: 3, ThreadsPerCore: 2}
		}, 6, 1 << 30, 1, "u-1"},
		"two networks": {func(vm *v1.VirtualMachine) {
			vm.Spec.VM.Networks = []v1.Network{{User: &v1.UserNetwork{}}, {Tap: &v1.Tap{Bridge: "br0"}}}
		}, 4, 1 << 30, 2, "u-1"},
	} {
		s := Plan(Observed{VM: machine(test.change)})
		if s.Live.CurrentCPUs != test.cpus || s.Live.CurrentRAM != test.ram || len(s.Machine.Networks) != test.nets || s.Machine.UUID != test.uuid {
			t.Errorf("%s: %+v %+v", name, s.Live, s.Machine)
		}
		text, err := s.Machine.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := vmconfig.Decode(text); err != nil || len(vmconfig.Difference(back, s.Machine)) > 0 {
			t.Errorf("%s: the runner reads %+v, %v", name, back, err)
		}
	}
}

// TestMediaNeedARepository: a CD that is a file stays out of its drive while there is no repository, and the rest works.
func TestMediaNeedARepository(t *testing.T) {
	declared := machine(func(vm *v1.VirtualMachine) {
		vm.Spec.VM.Disks = []v1.Disk{cd("a.iso"), cd("https://example.org/b.iso"), cd("")}
	})
	for repository, want := range map[string][]string{"": {"", "https://example.org/b.iso", ""}, "images": {"a.iso", "https://example.org/b.iso", ""}} {
		s := Plan(Observed{VM: declared, Settings: Settings{ImageRepository: repository}})
		if diff := cmp.Diff(want, s.Live.Media); diff != "" || (s.Err != nil) != (repository == "") {
			t.Errorf("repository %q: error %v; media (-want +got):\n%s", repository, s.Err, diff)
		}
	}
}

// TestImageIsAllowed: a runner may be privileged, so only images that a setting names are run.
func TestImageIsAllowed(t *testing.T) {
	settings := Settings{RunnerImage: "own:1", AllowedImages: []string{"registry.example/vm", "plain", "registry.example/pinned:1", "port.example:5000"}}
	for named, want := range map[string]string{
		"":                                 "own:1",
		"own:1":                            "own:1",
		"registry.example/vm":              "registry.example/vm",
		"registry.example/vm:4":            "registry.example/vm:4",
		"registry.example/vm@sha256:12":    "registry.example/vm@sha256:12",
		"registry.example/vm/runner:4":     "registry.example/vm/runner:4",
		"registry.example/vmevil":          "own:1",
		"registry.example/other":           "own:1",
		"plain:5000/evil":                  "own:1",
		"plain:5":                          "plain:5",
		"evil.example/registry.example/vm": "own:1",
		"registry.example/pinned:1":        "registry.example/pinned:1",
		"registry.example/pinned:2":        "own:1",
		"registry.example/pinned:1/evil":   "own:1",
		"port.example:5000/vm:1":           "port.example:5000/vm:1",
		// The digest says what runs, and the tag nothing.
		"registry.example/pinned:1@sha256:12": "own:1",
	} {
		s := Plan(Observed{Settings: settings, VM: machine(func(vm *v1.VirtualMachine) {
			if named != "" {
				vm.Spec.Image = &v1.Image{Source: ptr.To(named)}
			}
		})})
		if got := s.image(); got != want {
			t.Errorf("%q runs %q, want %q", named, got, want)
		}
	}
}

// TestInstanceID: by default the instance-id changes with the data alone. What it was chosen for is in the Secret, so that
// nothing that the operator writes changes it.
func TestInstanceID(t *testing.T) {
	withData := func(policy v1.InstanceIDPolicy, data, given string) *v1.VirtualMachine {
		return machine(func(vm *v1.VirtualMachine) {
			vm.Generation = 3
			vm.Spec.CloudInit = &v1.CloudInit{InstanceIDPolicy: policy, UserData: &runtime.RawExtension{Raw: []byte(data)}, MetaData: map[string]string{}}
			if given != "" {
				vm.Spec.CloudInit.MetaData["instance-id"] = given
			}
		})
	}
	secretOf := func(vm *v1.VirtualMachine) *corev1.Secret { return Plan(Observed{VM: vm}).CloudInitSecret() }
	first := secretOf(withData(v1.InstanceIDOnDataChange, `{"a":1}`, ""))
	eachVersion := secretOf(withData(v1.InstanceIDPerResourceVersion, `{"a":1}`, ""))
	for name, test := range map[string]struct {
		vm     *v1.VirtualMachine
		secret *corev1.Secret
		want   string
	}{
		"new":                     {withData(v1.InstanceIDOnDataChange, `{"a":1}`, ""), nil, "v8"},
		"unchanged data":          {withData(v1.InstanceIDOnDataChange, `{"a":1}`, ""), first, "v7"},
		"changed data":            {withData(v1.InstanceIDOnDataChange, `{"a":2}`, ""), first, "v8"},
		"stable":                  {withData(v1.InstanceIDStable, `{"a":2}`, ""), first, "u-1"},
		"for a new version":       {withData(v1.InstanceIDPerResourceVersion, `{"a":1}`, ""), first, "v8"},
		"for the same generation": {withData(v1.InstanceIDPerResourceVersion, `{"a":1}`, ""), eachVersion, "v7"},
		"given":                   {withData(v1.InstanceIDOnDataChange, `{"a":1}`, "mine"), first, "mine"},
		"changed, and then given": {withData(v1.InstanceIDOnDataChange, `{"a":3}`, "mine"), nil, "mine"},
	} {
		test.vm.ResourceVersion = "8"
		s := Plan(Observed{VM: test.vm, CloudInit: test.secret})
		if s.CloudInit.InstanceID != test.want || !strings.Contains(string(s.CloudInit.Files["meta-data"]), "instance-id: "+test.want) {
			t.Errorf("%s: the instance-id is %q, want %q:\n%s", name, s.CloudInit.InstanceID, test.want, s.CloudInit.Files["meta-data"])
		}
	}
	if text := string(first.Data["user-data"]); text != "#cloud-config\na: 1\n" {
		t.Errorf("the user data is %q", text)
	}
}

// TestClaimOfAnotherMachineIsNotUsed: the names of two machines and their disks may add up to the same name.
func TestClaimOfAnotherMachineIsNotUsed(t *testing.T) {
	declared := machine(func(vm *v1.VirtualMachine) {
		vm.Spec.VM.Firmware, vm.Spec.VM.Disks = v1.FirmwareBIOS, []v1.Disk{disk("a")}
	})
	for instance, want := range map[string]int32{"tiny": 1, "other": 0, "": 0} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelInstance: instance}}}
		s := Plan(Observed{VM: declared, Claims: map[string]*corev1.PersistentVolumeClaim{"a-disk-tiny-0": claim}})
		set, err := s.StatefulSet()
		if err != nil || *set.Spec.Replicas != want || (len(s.ForeignClaims()) > 0) != (want == 0) {
			t.Errorf("claim of %q: %d replicas, want %d (%v)", instance, *set.Spec.Replicas, want, err)
		}
	}
}

// TestMachineCanAlwaysBeStopped: what prevents a StatefulSet from being applied does not keep the machine running.
func TestMachineCanAlwaysBeStopped(t *testing.T) {
	failing := []metav1.Condition{{Type: ConditionObjects, Status: metav1.ConditionFalse}}
	for name, test := range map[string]struct {
		state      v1.State
		replicas   int32
		conditions []metav1.Condition
		want       bool
	}{
		"it is to run":            {v1.StateRunning, 1, failing, false},
		"nothing fails":           {v1.StateStopped, 1, nil, false},
		"it is stopped":           {v1.StateStopped, 0, failing, false},
		"it is to stop and fails": {v1.StateStopped, 1, failing, true},
	} {
		s := Plan(Observed{
			VM:          machine(func(vm *v1.VirtualMachine) { vm.Spec.VM.State, vm.Status.Conditions = test.state, test.conditions }),
			StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(test.replicas)}},
		})
		if got := s.MustStop(); got != test.want {
			t.Errorf("%s: must stop: %t, want %t", name, got, test.want)
		}
	}
}

// TestRestartIsRequired: a running machine names the fields that wait for its next start.
func TestRestartIsRequired(t *testing.T) {
	running := Plan(Observed{VM: machine(nil)})
	template, err := running.Template()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	for name, test := range map[string]struct {
		change func(*v1.VirtualMachine)
		want   []string
	}{
		"nothing":          {nil, nil},
		"a live field":     {func(vm *v1.VirtualMachine) { vm.Spec.GuestShutdownStops = true }, nil},
		"CPUs of now":      {func(vm *v1.VirtualMachine) { vm.Spec.VM.CurrentCPUs = ptr.To[int32](1) }, nil},
		"memory":           {func(vm *v1.VirtualMachine) { vm.Spec.VM.MaximumRAM = "2Gi" }, []string{"vm.maximumRam"}},
		"less patience":    {func(vm *v1.VirtualMachine) { vm.Spec.VM.PowerdownTimeout = 1 }, nil},
		"more patience":    {func(vm *v1.VirtualMachine) { vm.Spec.VM.PowerdownTimeout = 10000 }, []string{"vm.powerdownTimeout"}},
		"a disk":           {func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks = []v1.Disk{disk("a")} }, []string{"vm.drives"}},
		"firmware, a node": {func(vm *v1.VirtualMachine) { vm.Spec.VM.Firmware, vm.Spec.NodeName = v1.FirmwareBIOS, "n1" }, []string{"nodeName", "vm.firmware"}},
		"cloud-init":       {func(vm *v1.VirtualMachine) { vm.Spec.CloudInit = &v1.CloudInit{} }, []string{"cloudInit", "vm.cloudInit", "vm.diskLinks"}},
		"it is stopped":    {func(vm *v1.VirtualMachine) { vm.Spec.VM.MaximumRAM, vm.Spec.VM.State = "2Gi", v1.StateStopped }, nil},
	} {
		s := Plan(Observed{VM: machine(test.change), Pod: pod})
		if got := s.RestartFor(); !slices.Equal(got, test.want) {
			t.Errorf("%s: a restart is required for %v, want %v", name, got, test.want)
		}
	}
}

// TestAfterShutdown: only a runner that is parked is acted on, whatever became of its container since.
func TestAfterShutdown(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(seconds int) metav1.Time { return metav1.NewTime(began.Add(time.Duration(seconds) * time.Second)) }
	down := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "GuestShutDown: the guest shut itself down\n"}}
	crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 21, Message: "QEMUCrashed: it ended\n\nconsole:\nGuestShutDown: x"}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(0)}}
	backsOff := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for name, test := range map[string]struct {
		now, last corev1.ContainerState
		ready     bool
		unready   metav1.Time
		stopped   bool
		gone      bool
		late      bool
		parked    bool
	}{
		"it runs":                       {now: runs, ready: true},
		"it starts":                     {now: runs, unready: at(-60)},
		"the guest shut down":           {now: down, parked: true},
		"the runner waits to restart":   {now: backsOff, last: down, unready: at(-2), parked: true},
		"the runner is parked":          {now: runs, last: down, unready: at(-2), parked: true},
		"it starts by itself soon":      {now: runs, last: down, unready: at(-2), late: true, parked: true},
		"it was never ready":            {now: runs, last: down, unready: at(-90), parked: true},
		"it started by itself":          {now: runs, last: down, ready: true},
		"it started, and a probe fails": {now: runs, last: down, unready: at(300)},
		"QEMU crashed":                  {now: runs, last: crashed, unready: at(-2)},
		"the machine is to stop":        {now: down, stopped: true},
		"the pod goes":                  {now: down, gone: true},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: "tiny", State: test.now, LastTerminationState: test.last, Ready: test.ready}},
			Conditions:        []corev1.PodCondition{{Type: corev1.ContainersReady, LastTransitionTime: test.unready}},
		}}
		if test.gone {
			pod.DeletionTimestamp = ptr.To(at(0))
		}
		for stops, next := range map[bool]Next{true: NextStop, false: NextRestart} {
			want := NextNothing
			if test.parked && (stops || !test.late) {
				want = next
			}
			now := began.Add(time.Second)
			if test.late {
				now = began.Add(answerWithin + time.Second)
			}
			s := Plan(Observed{Pod: pod, Now: now, VM: machine(func(vm *v1.VirtualMachine) {
				vm.Spec.GuestShutdownStops = stops
				if test.stopped {
					vm.Spec.VM.State = v1.StateStopped
				}
			})})
			if got := s.AfterShutdown(); got != want {
				t.Errorf("%s, guestShutdownStops %t: next is %d, want %d", name, stops, got, want)
			}
		}
	}
	if s := Plan(Observed{VM: machine(nil)}); s.AfterShutdown() != NextNothing {
		t.Error("something is done without a pod")
	}
}
