package kubevirt_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

func virtualMachine(conditions ...kubevirtv1.VirtualMachineCondition) *kubevirtv1.VirtualMachine {
	strategy := kubevirtv1.RunStrategyAlways
	return &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "vm-1"},
		Spec:       kubevirtv1.VirtualMachineSpec{RunStrategy: &strategy},
		Status:     kubevirtv1.VirtualMachineStatus{PrintableStatus: kubevirtv1.VirtualMachineStatusStarting, Conditions: conditions},
	}
}

// instance is the instance of virtualMachine with two interfaces and two disks, which it reports in another order.
func instance(conditions ...kubevirtv1.VirtualMachineInstanceCondition) *kubevirtv1.VirtualMachineInstance {
	block := corev1.PersistentVolumeBlock
	claim := func(name string) *kubevirtv1.PersistentVolumeClaimInfo {
		return &kubevirtv1.PersistentVolumeClaimInfo{
			ClaimName: name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		}
	}
	vmi := &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Status: kubevirtv1.VirtualMachineInstanceStatus{
			Phase: kubevirtv1.Running, NodeName: "node-1", Conditions: conditions,
			GuestOSInfo: kubevirtv1.VirtualMachineInstanceGuestOSInfo{Name: "Debian", VersionID: "13", KernelRelease: "6.12"},
			Interfaces: []kubevirtv1.VirtualMachineInstanceNetworkInterface{
				{MAC: "0A:00:00:00:00:02", InterfaceName: "docker0", IPs: []string{"172.17.0.1"}, InfoSource: "guest-agent"},
				{MAC: "00:00:00:00:00:00", InterfaceName: "lo", IPs: []string{"10.8.0.1"}},
				{InterfaceName: "tun0", IPs: []string{"10.8.0.2"}},
				{Name: "eth1", MAC: "02:12:00:00:00:02", IP: "10.1.0.1", LinkState: "down"},
				{Name: "eth0", MAC: "02:12:00:00:00:01", IP: "10.0.0.1", IPs: []string{"10.0.0.1", "fe80::1", "2001:db8::1"}, LinkState: "up", InfoSource: "domain, guest-agent"},
			},
			VolumeStatus: []kubevirtv1.VolumeStatus{
				{Name: "cloudinitdisk", Target: "vdc"},
				{Name: "data", Target: "vdb", PersistentVolumeClaimInfo: claim("agent-data")},
				{Name: "root", Target: "vda", PersistentVolumeClaimInfo: claim("agent-root")},
			},
		},
	}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(virtualMachine(), kubevirtv1.VirtualMachineGroupVersionKind)}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "eth0"}, {Name: "eth1"}}
	vmi.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "root"}, {Name: "data"}, {Name: "cloudinitdisk"}}
	return vmi
}

// TestObserveGuest: interfaces and disks come in the order of the hardware, and only with usable addresses.
func TestObserveGuest(t *testing.T) {
	got := kubevirt.Observe(virtualMachine(), instance(kubevirtv1.VirtualMachineInstanceCondition{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}))
	disk := func(name, device string) v1alpha1.DiskStatus {
		return v1alpha1.DiskStatus{Name: name, Size: 1 << 30, Device: device, PVCName: "agent-" + name, VolumeMode: "Block", AccessModes: []string{"ReadWriteOnce"}}
	}
	want := vitistack.Observation{
		Created: true, Printable: kubevirtv1.VirtualMachineStatusStarting, RunStrategy: kubevirtv1.RunStrategyAlways,
		Instance: true, Phase: kubevirtv1.Running, Ready: true, Node: "node-1",
		Interfaces: []v1alpha1.NetworkInterfaceStatus{
			{Name: "eth0", MACAddress: "02:12:00:00:00:01", IPAddresses: []string{"10.0.0.1", "2001:db8::1"}, IPv6Addresses: []string{"2001:db8::1"}, State: "up", Type: "domain, guest-agent"},
			{Name: "eth1", MACAddress: "02:12:00:00:00:02", IPAddresses: []string{"10.1.0.1"}, State: "down"},
			{MACAddress: "0a:00:00:00:00:02", IPAddresses: []string{"172.17.0.1"}, Type: "guest-agent"},
		},
		Disks:           []v1alpha1.DiskStatus{disk("root", "/dev/vda"), disk("data", "/dev/vdb")},
		OperatingSystem: "Debian", OperatingSystemVersion: "13", KernelVersion: "6.12",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the guest is seen otherwise (-want +got):\n%s", diff)
	}
}

// TestObserve: what each condition and each relation of the two objects says.
func TestObserve(t *testing.T) {
	type said struct {
		created, instance, ready, paused, stopping      bool
		failure, restart, unschedulable, notReady, runs string
	}
	vmCondition := func(kind kubevirtv1.VirtualMachineConditionType, status corev1.ConditionStatus, message string) *kubevirtv1.VirtualMachine {
		return virtualMachine(kubevirtv1.VirtualMachineCondition{Type: kind, Status: status, Reason: "Why", Message: message})
	}
	vmiCondition := func(kind kubevirtv1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string) *kubevirtv1.VirtualMachineInstance {
		return instance(kubevirtv1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
	change := func(f func(*kubevirtv1.VirtualMachine)) *kubevirtv1.VirtualMachine {
		vm := virtualMachine()
		f(vm)
		return vm
	}
	const quota = `pods "virt-launcher-agent-x" is forbidden: exceeded quota: a, requested: b=1, used: b=2, limited: b=2`
	foreign := instance()
	foreign.OwnerReferences[0].UID = "vm-0"
	going := instance()
	going.DeletionTimestamp = &metav1.Time{}
	yes := true
	for name, test := range map[string]struct {
		vm   *kubevirtv1.VirtualMachine
		vmi  *kubevirtv1.VirtualMachineInstance
		want said
	}{
		"nothing":                      {nil, nil, said{}},
		"an instance that is alone":    {nil, instance(), said{}},
		"no instance":                  {virtualMachine(), nil, said{created: true, runs: "Always"}},
		"an instance of another owner": {virtualMachine(), foreign, said{created: true, runs: "Always"}},
		"no conditions yet":            {virtualMachine(), instance(), said{created: true, instance: true, runs: "Always"}},
		"a failure":                    {vmCondition(kubevirtv1.VirtualMachineFailure, "True", "no"), nil, said{created: true, failure: "no", runs: "Always"}},
		"a failure without a message":  {vmCondition(kubevirtv1.VirtualMachineFailure, "True", ""), nil, said{created: true, failure: "Why", runs: "Always"}},
		"a failure that is over":       {vmCondition(kubevirtv1.VirtualMachineFailure, "False", "no"), nil, said{created: true, runs: "Always"}},
		"a quota for instances":        {vmCondition(kubevirtv1.VirtualMachineFailure, "True", quota), nil, said{created: true, unschedulable: "exceeded quota: a, requested: b=1, limited: b=2", runs: "Always"}},
		"a pending restart":            {vmCondition(kubevirtv1.VirtualMachineRestartRequired, "True", "cores"), nil, said{created: true, restart: "cores", runs: "Always"}},
		"the VirtualMachine is going":  {change(func(vm *kubevirtv1.VirtualMachine) { vm.DeletionTimestamp = &metav1.Time{} }), nil, said{created: true, stopping: true, runs: "Always"}},
		"the word is Stopping":         {change(func(vm *kubevirtv1.VirtualMachine) { vm.Status.PrintableStatus = "Stopping" }), nil, said{created: true, stopping: true, runs: "Always"}},
		"the instance is going":        {virtualMachine(), going, said{created: true, instance: true, stopping: true, runs: "Always"}},
		"two run strategies":           {change(func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Running = &yes }), nil, said{created: true}},
		"running":                      {change(func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Running, vm.Spec.RunStrategy = &yes, nil }), nil, said{created: true, runs: "Always"}},
		"paused":                       {virtualMachine(), vmiCondition("Paused", "True", "", ""), said{created: true, instance: true, paused: true, runs: "Always"}},
		"not ready":                    {virtualMachine(), vmiCondition("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running"), said{created: true, instance: true, notReady: "Guest VM is not reported as running", runs: "Always"}},
		"no node has room":             {virtualMachine(), vmiCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes"), said{created: true, instance: true, unschedulable: "0/1 nodes", runs: "Always"}},
		"no node is chosen yet":        {virtualMachine(), vmiCondition("PodScheduled", "False", "SchedulingGated", ""), said{created: true, instance: true, runs: "Always"}},
		"a quota for pods":             {virtualMachine(), vmiCondition("Synchronized", "False", "FailedCreate", quota), said{created: true, instance: true, unschedulable: "exceeded quota: a, requested: b=1, limited: b=2", runs: "Always"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := kubevirt.Observe(test.vm, test.vmi)
			got := said{o.Created, o.Instance, o.Ready, o.Paused, o.Stopping, o.Failure, o.RestartRequired, o.Unschedulable, o.NotReady, string(o.RunStrategy)}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(said{})); diff != "" {
				t.Errorf("it is seen otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAGuestThatReportsALot is cut: what its agent says goes into the Machine's status.
func TestAGuestThatReportsALot(t *testing.T) {
	vmi := instance()
	long := strings.Repeat("é", 5000) + "\xff"
	vmi.Status.GuestOSInfo = kubevirtv1.VirtualMachineInstanceGuestOSInfo{Name: long, Version: long, KernelVersion: "a\xffb"}
	for i := range 1000 {
		vmi.Status.Interfaces = append(vmi.Status.Interfaces, kubevirtv1.VirtualMachineInstanceNetworkInterface{
			Name: long, MAC: fmt.Sprintf("0a:00:00:00:%02x:%02x", i>>8, i&255), InfoSource: long,
		})
	}
	o := kubevirt.Observe(virtualMachine(), vmi)
	if len(o.Interfaces) != vitistack.MostInterfaces || o.Interfaces[0].Name != "eth0" || o.KernelVersion != "ab" {
		t.Errorf("%d interfaces, the first is %q, and the kernel %q", len(o.Interfaces), o.Interfaces[0].Name, o.KernelVersion)
	}
	for _, text := range []string{o.OperatingSystem, o.OperatingSystemVersion, o.Interfaces[10].Name, o.Interfaces[10].Type} {
		if len(text) > 253 || len(text) < 250 || !utf8.ValidString(text) {
			t.Errorf("a text has %d bytes", len(text))
		}
	}
}
