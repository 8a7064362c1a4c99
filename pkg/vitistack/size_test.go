package vitistack_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// TestBuiltInTemplates: the table of the reference page.
func TestBuiltInTemplates(t *testing.T) {
	for name, want := range map[string][5]string{
		"small": {"1/1/1", "2Gi", "root", "20Gi", "default"}, "medium": {"2/1/1", "4Gi", "root", "40Gi", "default"}, "large": {"4/1/1", "8Gi", "root", "80Gi", "default"},
	} {
		b := vitistack.BuiltIn()[name]
		got := [5]string{topology(b.CPU), string(b.Memory), b.Disks[0].Name, string(b.Disks[0].Size), b.Disks[0].StorageClass}
		same(t, name, want, got)
	}
	same(t, "how many there are", 3, len(vitistack.BuiltIn()))
}

func topology(c v1alpha1.CPU) string {
	return fmt.Sprintf("%d/%d/%d", c.Cores, c.Threads, c.Sockets)
}

// bases are what values of a spec are laid over.
var bases = map[string]struct {
	spec v1alpha1.MachineSpec
	// cores, threads, sockets and memory that the base sets.
	want   [3]int32
	memory string
}{
	"small":             {v1alpha1.MachineSpec{Template: "small"}, [3]int32{1, 1, 1}, "2Gi"},
	"medium":            {v1alpha1.MachineSpec{Template: "medium"}, [3]int32{2, 1, 1}, "4Gi"},
	"large":             {v1alpha1.MachineSpec{Template: "large"}, [3]int32{4, 1, 1}, "8Gi"},
	"a configured one":  {v1alpha1.MachineSpec{Template: "wide"}, [3]int32{3, 2, 2}, "6Gi"},
	"a class":           {v1alpha1.MachineSpec{MachineClass: "c"}, [3]int32{8, 1, 2}, "16Gi"},
	"classic, no class": {v1alpha1.MachineSpec{Provider: "kubevirt"}, [3]int32{2, 1, 1}, "2Gi"},
}

var classOfBases = &v1alpha1.MachineClass{Spec: v1alpha1.MachineClassSpec{
	Enabled: true, CPU: v1alpha1.MachineClassCPU{Cores: 8, Sockets: 2}, Memory: v1alpha1.MachineClassMemory{Quantity: "16Gi"},
}}

// TestEveryValueOfASpecReplacesThatOfItsBase: all subsets of the values of both kinds of fields, over all bases.
func TestEveryValueOfASpecReplacesThatOfItsBase(t *testing.T) {
	states := 0
	for name, b := range bases {
		for choice := range 1 << 8 {
			states++
			spec, want, memory := b.spec, b.want, b.memory
			classic := [3]*int32{&spec.CPU.Cores, &spec.CPU.ThreadsPerCore, &spec.CPU.Sockets}
			own := [3]*int32{&spec.Resources.CPU.Cores, &spec.Resources.CPU.Threads, &spec.Resources.CPU.Sockets}
			for i := range 3 {
				if chosen(choice, i) {
					*classic[i] = int32(5 + i)
					want[i] = int32(5 + i)
				}
			}
			if chosen(choice, 3) {
				spec.Memory, memory = 3<<30+17, "3Gi" // whole MiB
			}
			for i := range 3 {
				if chosen(choice, 4+i) {
					*own[i] = int32(2 + i)
					want[i] = int32(2 + i)
				}
			}
			if chosen(choice, 7) {
				spec.Resources.Memory.Size, memory = "1500M", "1500M"
			}
			o := observe(spec)
			o.Class = classOfBases
			s := vitistack.Plan(o)
			// Without any form of size a spec in the fields of the reference page is refused, see below.
			if name == "classic, no class" && choice>>4 != 0 && !chosen(choice, 3) && !chosen(choice, 7) {
				same(t, "problems", 1, len(s.Problems))
				continue
			}
			got := [3]int32{s.Wanted.CPU.Cores, s.Wanted.CPU.Threads, s.Wanted.CPU.Sockets}
			if got != want || s.Wanted.Memory.Cmp(resource.MustParse(memory)) != 0 || len(s.Problems) > 0 {
				t.Errorf("%s, choice %08b: %v and %s, want %v and %s; problems %v", name, choice, got, s.Wanted.Memory.String(), want, memory, said(s))
			}
		}
	}
	t.Logf("%d states", states)
}

// TestTemplateOfALabel: it counts where the spec names none.
func TestTemplateOfALabel(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.MachineSpec
		want string
	}{
		"an empty spec":         {v1alpha1.MachineSpec{}, "large"},
		"another template":      {v1alpha1.MachineSpec{Template: "small"}, "small"},
		"with values of a spec": {v1alpha1.MachineSpec{Resources: v1alpha1.Resources{CPU: v1alpha1.CPU{Cores: 9}}}, "large"},
	} {
		o := observe(test.spec)
		o.Machine.Labels = map[string]string{v1alpha1.LabelTemplate: "large"}
		s := vitistack.Plan(o)
		same(t, name, []any{test.want, 0}, []any{s.Wanted.Template, len(s.Problems)})
	}
}

// TestSizesThatCannotBe: each has its error type and its way out.
func TestSizesThatCannotBe(t *testing.T) {
	disabled := &v1alpha1.MachineClass{Spec: classOfBases.Spec}
	disabled.Name, disabled.Spec.Enabled = "c", false
	for name, test := range map[string]struct {
		spec  v1alpha1.MachineSpec
		class *v1alpha1.MachineClass
		want  []string
	}{
		"an unknown template":            {v1alpha1.MachineSpec{Template: "huge"}, nil, []string{`TemplateNotFound: template "huge" is unknown; there are small, medium, large, wide`}},
		"in other letters":               {v1alpha1.MachineSpec{Template: "Small"}, nil, []string{`TemplateNotFound: template "Small" is unknown; there are small, medium, large, wide`}},
		"with a disk that changes one":   {v1alpha1.MachineSpec{Template: "huge", Disks: []v1alpha1.Disk{{Name: "root", AccessMode: "ReadWriteMany"}}}, nil, []string{`TemplateNotFound: template "huge" is unknown; there are small, medium, large, wide`}},
		"a class that is not there":      {v1alpha1.MachineSpec{MachineClass: "c"}, nil, []string{"MachineClassNotFound: MachineClass c not found; create it, or change spec.machineClass"}},
		"a class that is disabled":       {v1alpha1.MachineSpec{MachineClass: "c"}, disabled, []string{"MachineClassDisabled: MachineClass c is disabled; set its spec.enabled, or change spec.machineClass"}},
		"an empty spec":                  {v1alpha1.MachineSpec{}, nil, []string{"InvalidSpec: the spec has no size; set spec.template to one of small, medium, large, wide, or spec.resources.memory.size"}},
		"no memory":                      {v1alpha1.MachineSpec{Resources: v1alpha1.Resources{CPU: v1alpha1.CPU{Cores: 4}}}, nil, []string{"InvalidSpec: the spec has no size; set spec.template to one of small, medium, large, wide, or spec.resources.memory.size"}},
		"memory alone is a size":         {v1alpha1.MachineSpec{Resources: v1alpha1.Resources{Memory: v1alpha1.Memory{Size: "1Gi"}}}, nil, nil},
		"memory in MiB instead of bytes": {v1alpha1.MachineSpec{Memory: 4096}, nil, []string{"InvalidSpec: spec.memory is 4096 bytes, less than 1Mi; it is a number of bytes"}},
		"no quantity":                    {v1alpha1.MachineSpec{Resources: v1alpha1.Resources{Memory: v1alpha1.Memory{Size: "much"}}}, nil, []string{`InvalidSpec: spec.resources.memory.size is "much"; it must be a quantity of more than zero, for example 8Gi`}},
	} {
		o := observe(test.spec)
		o.Class = test.class
		same(t, name, test.want, said(vitistack.Plan(o)))
	}
}
