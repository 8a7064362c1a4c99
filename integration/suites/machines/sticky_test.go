package machines_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func containsFold(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// identity is what a guest is known by to its operating system. KubeVirt sets it once.
func identity(vm *kubevirtv1.VirtualMachine) string {
	spec := vm.Spec.Template.Spec
	return fmt.Sprintf("uuid %s, serial %s, machine %s, architecture %s, pci %q, mac %s", spec.Domain.Firmware.UUID, spec.Domain.Firmware.Serial,
		spec.Domain.Machine.Type, spec.Architecture, vm.Spec.Template.ObjectMeta.Annotations["kubevirt.io/pci-topology-version"],
		spec.Domain.Devices.Interfaces[0].MacAddress)
}

// edits are one of each kind of change to a spec, and whether the VirtualMachine has it.
var edits = []struct {
	name string
	by   func(*v1alpha1.MachineSpec)
	has  func(*kubevirtv1.VirtualMachineInstanceSpec) bool
}{
	{"sockets", func(s *v1alpha1.MachineSpec) { s.Resources.CPU.Sockets = 2 }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool { return s.Domain.CPU.Sockets == 2 }},
	{"cores", func(s *v1alpha1.MachineSpec) { s.Resources.CPU.Cores = 3 }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool { return s.Domain.CPU.Cores == 3 }},
	{"memory", func(s *v1alpha1.MachineSpec) { s.Resources.Memory.Size = "3Gi" }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return s.Domain.Memory.Guest.String() == "3Gi"
	}},
	{"template", func(s *v1alpha1.MachineSpec) { s.Template = "medium"; s.Resources = v1alpha1.Resources{} }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return s.Domain.CPU.Cores == 2 && s.Domain.Memory.Guest.String() == "4Gi"
	}},
	{"a disk", func(s *v1alpha1.MachineSpec) { s.Disks = []v1alpha1.Disk{{Name: "data", Size: "1Gi"}} }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return len(s.Volumes) == 2 && len(s.Domain.Devices.Disks) == 2
	}},
	{"no disk", func(s *v1alpha1.MachineSpec) { s.Disks = nil }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return len(s.Volumes) == 1 && len(s.Domain.Devices.Disks) == 1
	}},
	{"firmware", func(s *v1alpha1.MachineSpec) {
		efi := true
		s.Domain.Firmware.Bootloader = &v1alpha1.Bootloader{EFI: &efi}
	}, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return s.Domain.Firmware.Bootloader != nil && s.Domain.Firmware.Bootloader.EFI != nil
	}},
	{"no firmware", func(s *v1alpha1.MachineSpec) { s.Domain.Firmware.Bootloader = nil }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return s.Domain.Firmware.Bootloader == nil || s.Domain.Firmware.Bootloader.EFI == nil
	}},
	{"cloud-init", func(s *v1alpha1.MachineSpec) { s.CloudInit = &v1alpha1.CloudInit{UserData: "#cloud-config\n"} }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		return len(s.Volumes) == 2
	}},
	{"boot order", func(s *v1alpha1.MachineSpec) { s.BootOrder = []string{"network", "disk"} }, func(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
		order := s.Domain.Devices.Interfaces[0].BootOrder
		return order != nil && *order == 1
	}},
}

// TestTheIdentityOfAGuestSurvivesEditsAndRestarts is K1: nothing of what KubeVirt sets once changes, with each kind of edit
// and a restart of the operator after every other one.
func TestTheIdentityOfAGuestSurvivesEditsAndRestarts(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	before := identity(p.vm(m))
	t.Log(before)
	if strings.Contains(before, "uuid ,") || strings.Contains(before, "serial ,") {
		t.Fatalf("KubeVirt has set nothing: %s", before)
	}
	for i, edit := range edits {
		change(p, m, func(m *v1alpha1.Machine) { edit.by(&m.Spec) })
		p.until(func() error {
			if vm := p.vm(m); !edit.has(&vm.Spec.Template.Spec) {
				return fmt.Errorf("the edit of %s has not arrived: %+v", edit.name, vm.Spec.Template.Spec)
			}
			return nil
		})
		if i%2 == 1 {
			p.operator.stop(t)
			p.operator = p.serve()
		}
		if after := identity(p.vm(m)); after != before {
			t.Errorf("after the edit of %s: %s, and before: %s", edit.name, after, before)
		}
	}
	p.stays(m)
	p.end(m) // while the last operator runs
}

// between is a transport that does something between the operator's pass and the arrival of its next write of a
// VirtualMachine, once.
type between struct {
	mu sync.Mutex
	do func()
}

// next does something before the next write.
func (b *between) next(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.do = do
}

func (b *between) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/virtualmachines/") {
			b.mu.Lock()
			do := b.do
			b.do = nil
			b.mu.Unlock()
			if do != nil {
				do()
			}
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestAStopBetweenReadingAndWritingIsNotUndone is K2. The first edit moves the fields to the operator's manager and the
// second only applies, so both are tried.
func TestAStopBetweenReadingAndWritingIsNotUndone(t *testing.T) {
	b := &between{}
	p := together(t, wrapped(b.wrap))
	m := p.machine("vm", "{template: small}")
	for _, sockets := range []int32{2, 3} {
		p.await(m, runs)
		p.settles()
		stopped := make(chan error, 1)
		b.next(func() { stopped <- kube.StopMachine(context.Background(), key(m)) })
		change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Sockets = sockets })
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		p.until(func() error {
			if got := p.vm(m).Spec.Template.Spec.Domain.CPU.Sockets; got != uint32(sockets) {
				return fmt.Errorf("there are %d sockets", got)
			}
			return nil
		})
		if strategy, _ := p.vm(m).RunStrategy(); strategy != kubevirtv1.RunStrategyHalted {
			t.Errorf("the run strategy is %s", strategy)
		}
		p.await(m, want{phase: v1alpha1.PhaseStopped, ready: v1alpha1.ReasonStopped})
		p.start(m)
	}
}

// TestAVolumeThatIsPluggedInMeanwhileStays is K3.
func TestAVolumeThatIsPluggedInMeanwhileStays(t *testing.T) {
	b := &between{}
	p := together(t, wrapped(b.wrap))
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	for i, name := range []string{"extra1", "extra2"} {
		claim := &corev1.PersistentVolumeClaim{}
		p.yaml("metadata: {name: "+name+"}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}", claim)
		p.create(claim)
		p.settles()
		plugged := make(chan error, 1)
		b.next(func() { plugged <- p.plug(m, name) })
		change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Sockets = int32(2 + i) })
		if err := <-plugged; err != nil {
			t.Fatal(err)
		}
		p.until(func() error {
			if got := p.vm(m).Spec.Template.Spec.Domain.CPU.Sockets; got != uint32(2+i) {
				return fmt.Errorf("there are %d sockets", got)
			}
			return nil
		})
		if volumes := volumesOf(p.vm(m)); !strings.Contains(volumes, name) || !strings.Contains(volumes, "root") {
			t.Errorf("after the edit beside the hot-plug the volumes are %s", volumes)
		}
	}
	if volumes := volumesOf(p.vm(m)); volumes != "root extra1 extra2" {
		t.Errorf("the volumes are %s", volumes)
	}
}

// plug plugs a claim into a guest and returns when the VirtualMachine has it.
func (p *place) plug(m *v1alpha1.Machine, claim string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := kube.AddVolume(ctx, key(m), claim, claim); err != nil {
		return err
	}
	return poll.Until(ctx, glance, nil, func(context.Context) error {
		vm := &kubevirtv1.VirtualMachine{}
		if err := read(p, m.Name, vm); err != nil {
			return err
		}
		if volumes := volumesOf(vm); !strings.Contains(volumes, claim) {
			return fmt.Errorf("the volumes are %s", volumes)
		}
		return nil
	})
}

func volumesOf(vm *kubevirtv1.VirtualMachine) string {
	var names []string
	for _, v := range vm.Spec.Template.Spec.Volumes {
		names = append(names, v.Name)
	}
	return strings.Join(names, " ")
}
