package vitistack

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// Handles returns whether a Machine is for this operator: its provider is kubevirt or empty.
func Handles(m *v1alpha1.Machine) bool {
	return m.Spec.Provider == "" || m.Spec.Provider == v1alpha1.Provider
}

// Plan decides what a Machine needs. It always returns a State: what is wrong is among its Problems.
func Plan(o Observed) *State {
	p := &plan{Observed: o, classic: classic(&o.Machine.Spec)}
	b := p.base()
	p.size(b)
	p.disks(b)
	p.interfaces()
	p.boot()
	p.cloudInit()
	p.domain()
	p.machineNotOurs()
	return &State{Observed: o, Wanted: p.wanted, Problems: inOrder(p.problems)}
}

// plan is a State in the making.
type plan struct {
	Observed
	// classic is the form of the spec, which decides defaults.
	classic  bool
	wanted   Wanted
	problems []Problem
	// unsourced are the values of spec.cloudInit that are missing, each with what is wrong with it.
	unsourced []string
}

// classic returns whether a spec is written in the fields of vitistack/common. Such Machines get the defaults that they
// had there. Every other spec, also an empty one, has the defaults of the reference page.
func classic(spec *v1alpha1.MachineSpec) bool {
	if spec.Template != "" || spec.Resources != (v1alpha1.Resources{}) || len(spec.Networks) > 0 || len(spec.BootOrder) > 0 || spec.Domain != (v1alpha1.Domain{}) {
		return false
	}
	if spec.CloudInit != nil && spec.CloudInit.SecretRef != nil {
		return false
	}
	some := spec.MachineClass != "" || spec.CPU != (v1alpha1.ClassicCPU{}) || spec.Memory != 0 || spec.Network != nil || spec.OS != nil || spec.Provider != ""
	for i := range spec.Disks {
		d := &spec.Disks[i]
		if d.Size != "" || d.StorageClass != "" || d.AccessMode != "" || d.VolumeMode != "" {
			return false
		}
		some = some || d.SizeGB != 0 || d.Boot || d.Type != ""
	}
	return some
}

// classicCPUModel is the CPU model of Machines in fields of vitistack/common where the settings name none.
const classicCPUModel = "host-model"

// domain passes the hardware settings on. Machines in fields of vitistack/common always had UEFI without secure boot.
func (p *plan) domain() {
	p.wanted.Domain, p.wanted.CPUModel = *p.Machine.Spec.Domain.DeepCopy(), p.Settings.CPUModel
	if !p.classic {
		return
	}
	efi := true
	p.wanted.Domain.Firmware.Bootloader = &v1alpha1.Bootloader{EFI: &efi}
	if p.wanted.CPUModel == "" {
		p.wanted.CPUModel = classicCPUModel
	}
}
