package vitistack

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// root is the name of the disk that a Machine boots from unless another one has boot: true.
const root = "root"

// builtIn are the names of the built-in templates, by size.
var builtIn = []string{"small", "medium", "large"}

// BuiltIn returns the built-in templates by name.
func BuiltIn() map[string]Template {
	of := func(cores int32, memory, disk v1alpha1.Quantity) Template {
		return Template{
			CPU: v1alpha1.CPU{Cores: cores, Threads: 1, Sockets: 1}, Memory: memory,
			Disks: []v1alpha1.Disk{{Name: root, Size: disk, StorageClass: literalDefault}},
		}
	}
	return map[string]Template{"small": of(1, "2Gi", "20Gi"), "medium": of(2, "4Gi", "40Gi"), "large": of(4, "8Gi", "80Gi")}
}

// The size of a Machine in fields of vitistack/common that names no class. The processors are also those of a Machine that
// sets nothing but memory, and the disk is that of every Machine without a template that lists none.
const (
	fallbackCores  = 2
	fallbackMemory = v1alpha1.Quantity("2Gi")
	fallbackDisk   = v1alpha1.Quantity("10Gi")
)

// TemplateOf returns the name of the template that a Machine refers to, whether there is one of that name or not; empty
// for none. The label counts where the spec names no template.
func TemplateOf(m *v1alpha1.Machine) string {
	if m.Spec.Template != "" {
		return m.Spec.Template
	}
	return m.Labels[v1alpha1.LabelTemplate]
}

// template returns a template by name. The built-in ones exist whatever the settings say.
func (s *Settings) template(name string) (Template, bool) {
	if t, ok := s.Templates[name]; ok {
		return t, true
	}
	t, ok := BuiltIn()[name]
	return t, ok
}

// templateNames returns the names of all templates, the built-in ones first.
func (s *Settings) templateNames() []string {
	names := slices.Clone(builtIn)
	for _, name := range slices.Sorted(maps.Keys(s.Templates)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// base is what the values of a spec replace, one by one.
type base struct {
	Template
	// unknown says that the template or the class does not exist. What it would set is then not missing from the spec.
	unknown bool
}

// base returns what the template or the class of the Machine sets.
func (p *plan) base() base {
	spec := &p.Machine.Spec
	name := TemplateOf(p.Machine)
	switch {
	case name != "":
		t, ok := p.Settings.template(name)
		if !ok {
			p.report(v1alpha1.TemplateNotFound, "template %q is unknown; there are %s", name, strings.Join(p.Settings.templateNames(), ", "))
			return base{unknown: true}
		}
		p.wanted.Template = name
		return base{Template: t}
	case spec.MachineClass != "":
		return p.class()
	}
	b := base{Template: Template{CPU: v1alpha1.CPU{Cores: fallbackCores}, Disks: p.onlyDisk()}}
	if p.classic {
		b.Memory = fallbackMemory
	}
	return b
}

// class returns what the MachineClass of the Machine sets.
func (p *plan) class() base {
	if p.Class == nil {
		p.report(v1alpha1.MachineClassNotFound, "MachineClass %s not found; create it, or change spec.machineClass", p.Machine.Spec.MachineClass)
		return base{unknown: true}
	}
	if !p.Class.Spec.Enabled {
		p.report(v1alpha1.MachineClassDisabled, "MachineClass %s is disabled; set its spec.enabled, or change spec.machineClass", p.Class.Name)
	}
	cpu := p.Class.Spec.CPU
	return base{Template: Template{
		CPU: v1alpha1.CPU{Cores: cpu.Cores, Threads: cpu.Threads, Sockets: cpu.Sockets}, Memory: p.Class.Spec.Memory.Quantity, Disks: p.onlyDisk(),
	}}
}

// onlyDisk returns the disk of a Machine without a template, if its spec lists none.
func (p *plan) onlyDisk() []v1alpha1.Disk {
	if len(p.Machine.Spec.Disks) > 0 {
		return nil
	}
	return []v1alpha1.Disk{{Name: root, Size: fallbackDisk}}
}

// size decides on processors and memory. Each number of the spec replaces that of the base, and the fields of the
// reference page replace those of vitistack/common.
func (p *plan) size(b base) {
	spec := &p.Machine.Spec
	own, former := spec.Resources.CPU, spec.CPU
	p.wanted.CPU = v1alpha1.CPU{
		Cores:   firstOf(own.Cores, former.Cores, b.CPU.Cores, 1),
		Threads: firstOf(own.Threads, former.ThreadsPerCore, b.CPU.Threads, 1),
		Sockets: firstOf(own.Sockets, former.Sockets, b.CPU.Sockets, 1),
	}
	switch {
	case spec.Resources.Memory.Size != "":
		p.wanted.Memory = p.quantity(spec.Resources.Memory.Size, "spec.resources.memory.size")
	case spec.Memory > 0:
		p.wanted.Memory = p.mebibytes(spec.Memory)
	case b.Memory != "":
		p.wanted.Memory = p.quantity(b.Memory, "the memory of the template or class")
	case !b.unknown:
		// A spec without a size is more likely misspelled than a request for any size.
		p.report(v1alpha1.InvalidSpec, "the spec has no size; set spec.template to one of %s, or spec.resources.memory.size", strings.Join(p.Settings.templateNames(), ", "))
	}
}

// firstOf returns the first positive number.
func firstOf(numbers ...int32) int32 {
	for _, n := range numbers {
		if n > 0 {
			return n
		}
	}
	return 0
}

// mebibytes returns memory in whole MiB, as in vitistack's operator.
func (p *plan) mebibytes(bytes int64) resource.Quantity {
	const mebibyte = 1 << 20
	if bytes < mebibyte {
		p.report(v1alpha1.InvalidSpec, "spec.memory is %d bytes, less than 1Mi; it is a number of bytes", bytes)
	}
	return *resource.NewQuantity(bytes/mebibyte*mebibyte, resource.BinarySI)
}

// quantity parses a number of bytes, more than zero. what names it.
func (p *plan) quantity(text v1alpha1.Quantity, what string) resource.Quantity {
	q, err := text.Parse()
	if err != nil || q.Sign() <= 0 {
		p.report(v1alpha1.InvalidSpec, "%s is %q; it must be a quantity of more than zero, for example 8Gi", what, text)
		return resource.Quantity{}
	}
	return q
}
