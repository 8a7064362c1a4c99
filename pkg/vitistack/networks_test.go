package vitistack_test

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// network returns a NetworkConfiguration of generation 2.
func network(name, bridge string, vlan int32, conditions ...metav1.Condition) *v1alpha1.NetworkConfiguration {
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 2}}
	nc.Spec.Bridge, nc.Spec.VLAN, nc.Status.Conditions = bridge, vlan, conditions
	return nc
}

func ready(status metav1.ConditionStatus, generation int64) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionAttachmentReady, Status: status, ObservedGeneration: generation, Message: "Multus is not installed"}
}

func attachedTo(networks ...string) v1alpha1.MachineSpec {
	spec := v1alpha1.MachineSpec{Template: "small"}
	for i, n := range networks {
		spec.Networks = append(spec.Networks, v1alpha1.Network{Name: fmt.Sprintf("eth%d", i), NetworkName: n})
	}
	return spec
}

func TestNetworks(t *testing.T) {
	missing := "NetworkConfigurationNotFound: NetworkConfiguration ci/lan not found; create it, or change spec.networks"
	failed := "NetworkAttachmentFailed: NetworkConfiguration ci/lan has no NetworkAttachmentDefinition: Multus is not installed"
	for name, test := range map[string]struct {
		spec     v1alpha1.MachineSpec
		networks []*v1alpha1.NetworkConfiguration
		// want are "name model attachment" of the interfaces.
		want, problems, pending []string
	}{
		"none: the network of pods":             {attachedTo(), nil, []string{"default virtio "}, nil, nil},
		"one that is the network of pods":       {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "", 0)}, []string{"eth0 virtio "}, nil, nil},
		"a bridge that is ready":                {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "br1", 0, ready("True", 2))}, []string{"eth0 virtio lan"}, nil, nil},
		"a VLAN, not reconciled yet":            {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "", 7)}, []string{"eth0 virtio lan"}, nil, []string{"lan"}},
		"ready before it was changed":           {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "br1", 0, ready("True", 1))}, []string{"eth0 virtio lan"}, nil, []string{"lan"}},
		"failed":                                {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "br1", 0, ready("False", 2))}, []string{"eth0 virtio lan"}, []string{failed}, nil},
		"failed before it was changed":          {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "br1", 0, ready("False", 1))}, []string{"eth0 virtio lan"}, nil, []string{"lan"}},
		"unknown":                               {attachedTo("lan"), []*v1alpha1.NetworkConfiguration{network("lan", "br1", 0, ready("Unknown", 2))}, []string{"eth0 virtio lan"}, nil, []string{"lan"}},
		"missing":                               {attachedTo("lan"), nil, []string{"eth0 virtio lan"}, []string{missing}, nil},
		"two interfaces on one that is missing": {attachedTo("lan", "lan"), nil, []string{"eth0 virtio lan", "eth1 virtio lan"}, []string{missing}, nil},
		"two interfaces on one bridge":          {attachedTo("lan", "lan"), []*v1alpha1.NetworkConfiguration{network("lan", "br1", 0)}, []string{"eth0 virtio lan", "eth1 virtio lan"}, nil, []string{"lan"}},
		"two on the network of pods": {
			attachedTo("lan", "pods"), []*v1alpha1.NetworkConfiguration{network("lan", "", 0), network("pods", "", 0)}, []string{"eth0 virtio ", "eth1 virtio "},
			[]string{"InvalidSpec: interfaces eth0 and eth1 are on the network of pods, because their NetworkConfigurations have neither bridge nor vlan; a Machine has at most one there"}, nil,
		},
		"two of one name": {
			v1alpha1.MachineSpec{Template: "small", Networks: []v1alpha1.Network{{Name: "a", NetworkName: "lan", Model: "e1000"}, {Name: "a", NetworkName: "lan"}}},
			[]*v1alpha1.NetworkConfiguration{network("lan", "br1", 0, ready("True", 2))}, []string{"a e1000 lan"}, []string{"InvalidSpec: spec.networks has two interfaces called a; rename one"}, nil,
		},
	} {
		o := observe(test.spec)
		o.Networks = map[string]*v1alpha1.NetworkConfiguration{}
		for _, nc := range test.networks {
			o.Networks[nc.Name] = nc
		}
		s := vitistack.Plan(o)
		var got []string
		for _, i := range s.Wanted.Interfaces {
			got = append(got, i.Name+" "+i.Model+" "+i.Attachment)
		}
		same(t, name, [][]string{test.want, test.problems, test.pending}, [][]string{got, said(s), s.PendingNetworks()})
		for _, p := range s.Problems {
			if (p.Network == "lan") != (p.Type != v1alpha1.InvalidSpec) {
				t.Errorf("%s: problem %+v names another network", name, p)
			}
		}
	}
}

// TestReferring: networks whose status has an interface of the Machine hold up its deletion, also those that it no longer names.
func TestReferring(t *testing.T) {
	o := observe(attachedTo("a"))
	a, b, c := network("a", "", 0), network("b", "br1", 0), network("c", "br1", 0)
	a.Status.Attachments = []v1alpha1.Attachment{{Machine: "other", Interface: "eth0"}}
	b.Status.Attachments = []v1alpha1.Attachment{{Machine: "other", Interface: "eth0"}, {Machine: name, Interface: "eth0"}}
	o.Networks = map[string]*v1alpha1.NetworkConfiguration{"a": a, "b": b, "c": c, "d": nil}
	same(t, "referring", []string{"b"}, vitistack.Plan(o).Referring())
}

func TestConfigOfAttachments(t *testing.T) {
	for name, test := range map[string]struct {
		nc     *v1alpha1.NetworkConfiguration
		want   string
		needed bool
	}{
		"a bridge":            {network("a", "br1", 0), `{"cniVersion":"1.0.0","name":"br1","plugins":[{"type":"bridge","bridge":"br1","ipam":{}}]}`, true},
		"a bridge and a VLAN": {network("a", "br1", 9), `{"cniVersion":"1.0.0","name":"br1","plugins":[{"type":"bridge","bridge":"br1","ipam":{},"vlan":9}]}`, true},
		"a VLAN":              {network("a", "", 4094), `{"cniVersion":"1.0.0","name":"br0","plugins":[{"type":"bridge","bridge":"br0","ipam":{},"vlan":4094}]}`, true},
		"neither":             {network("a", "", 0), "", false},
	} {
		got, needed := vitistack.AttachmentConfig(test.nc, "1.0.0")
		same(t, name, []any{test.want, test.needed}, []any{got, needed})
	}
}

// TestBootOrder: every order of every subset of the words, for Machines with and without disks.
func TestBootOrder(t *testing.T) {
	states := 0
	for _, order := range orders([]string{"disk", "network", "cdrom"}) {
		for _, template := range []string{"small", "wide"} {
			states++
			s := plan(v1alpha1.MachineSpec{Template: template, BootOrder: order})
			words := slices.DeleteFunc(slices.Clone(order), func(w string) bool { return w == "cdrom" })
			if len(order) == 0 {
				words = []string{"disk"}
			}
			for _, d := range s.Wanted.Disks {
				if want := uint(slices.Index(words, "disk") + 1); d.Root && d.BootOrder != want || !d.Root && d.BootOrder != 0 {
					t.Errorf("%v: disk %s has %d", order, d.Name, d.BootOrder)
				}
			}
			if got, want := s.Wanted.Interfaces[0].BootOrder, uint(slices.Index(words, "network")+1); got != want {
				t.Errorf("%v: the interface has %d, want %d", order, got, want)
			}
		}
	}
	t.Logf("%d states", states)
	o := observe(v1alpha1.MachineSpec{Template: "bare", BootOrder: []string{"disk", "network"}})
	o.Settings.Templates = map[string]vitistack.Template{"bare": {Memory: "1Gi"}}
	s := vitistack.Plan(o)
	same(t, "a word without a device takes no number", []any{0, uint(1)}, []any{len(s.Wanted.Disks), s.Wanted.Interfaces[0].BootOrder})
}

// orders returns every order of every subset.
func orders(words []string) [][]string {
	all := [][]string{nil}
	for i, w := range words {
		rest := slices.Delete(slices.Clone(words), i, i+1)
		for _, tail := range orders(rest) {
			all = append(all, append([]string{w}, tail...))
		}
	}
	return all
}

// TestClassicMachines: the defaults of vitistack/common go with its fields, and with them alone.
func TestClassicMachines(t *testing.T) {
	efi := true
	for name, test := range map[string]struct {
		spec    v1alpha1.MachineSpec
		classic bool
		network uint // boot order of the interface
	}{
		"a class":                       {v1alpha1.MachineSpec{MachineClass: "c"}, true, 2},
		"processors":                    {v1alpha1.MachineSpec{CPU: v1alpha1.ClassicCPU{Cores: 1}}, true, 2},
		"memory":                        {v1alpha1.MachineSpec{Memory: 1 << 30}, true, 2},
		"a provider":                    {v1alpha1.MachineSpec{Provider: "kubevirt"}, true, 2},
		"a network":                     {v1alpha1.MachineSpec{Network: raw(`{}`)}, true, 2},
		"a size in GB":                  {v1alpha1.MachineSpec{Disks: []v1alpha1.Disk{{Name: "root", SizeGB: 1}}}, true, 2},
		"an image":                      {v1alpha1.MachineSpec{OS: raw(`{"imageID":"x"}`)}, true, 0},
		"an empty image":                {v1alpha1.MachineSpec{OS: raw(`{"imageID":""}`)}, true, 2},
		"an os that is no object":       {v1alpha1.MachineSpec{OS: raw(`[1]`)}, true, 2},
		"a template besides":            {v1alpha1.MachineSpec{Template: "small", Provider: "kubevirt"}, false, 0},
		"resources besides":             {v1alpha1.MachineSpec{Provider: "kubevirt", Resources: v1alpha1.Resources{Memory: v1alpha1.Memory{Size: "1Gi"}}}, false, 0},
		"a boot order besides":          {v1alpha1.MachineSpec{Memory: 1 << 30, BootOrder: []string{"disk"}}, false, 0},
		"a domain besides":              {v1alpha1.MachineSpec{Memory: 1 << 30, Domain: v1alpha1.Domain{Features: v1alpha1.Features{ACPI: &efi}}}, false, 0},
		"a size besides":                {v1alpha1.MachineSpec{Memory: 1 << 30, Disks: []v1alpha1.Disk{{Name: "root", Size: "1Gi"}}}, false, 0},
		"nothing but a disk's own name": {v1alpha1.MachineSpec{Disks: []v1alpha1.Disk{{Name: "root"}}}, false, 0},
	} {
		o := observe(test.spec)
		o.Class = classOfBases
		s := vitistack.Plan(o)
		b := s.Wanted.Domain.Firmware.Bootloader
		got := b != nil && b.EFI != nil && *b.EFI && !b.SecureBoot && s.Wanted.CPUModel == "host-model"
		same(t, name, []any{test.classic, test.network}, []any{got, s.Wanted.Interfaces[0].BootOrder})
	}
	o := observe(v1alpha1.MachineSpec{Provider: "kubevirt"})
	o.Settings.CPUModel = "Haswell"
	same(t, "the setting wins", "Haswell", vitistack.Plan(o).Wanted.CPUModel)
}
