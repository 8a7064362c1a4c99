package vitistack_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// withMACs returns a Machine with two interfaces; an empty address is derived.
func withMACs(first, second string) v1alpha1.MachineSpec {
	spec := attachedTo("lan", "lan")
	spec.Networks[0].MACAddress, spec.Networks[1].MACAddress = first, second
	return spec
}

func macsOf(o vitistack.Observed) []string {
	o.Networks = map[string]*v1alpha1.NetworkConfiguration{"lan": network("lan", "br1", 0, ready("True", 2))}
	var macs []string
	for _, i := range vitistack.Plan(o).Wanted.Interfaces {
		macs = append(macs, i.MAC)
	}
	return macs
}

// TestDerivedAddressesStay: they are a function of namespace, name, UID, interface and setting, and of nothing else.
func TestDerivedAddressesStay(t *testing.T) {
	o := observe(withMACs("", ""))
	first := macsOf(o)
	// As printf ci/build-agent/$uid/eth0 | sha256sum has it: another function would give every guest another address.
	same(t, "the addresses", []string{"02:12:01:6d:e0:c8", "02:12:12:ad:37:df"}, first)
	changed := observe(withMACs("", ""))
	changed.Machine.Spec.Template, changed.Machine.Spec.BootOrder, changed.Machine.Generation = "large", []string{"network"}, 9
	changed.Machine.Labels, changed.Machine.ResourceVersion = map[string]string{"a": "b"}, "77"
	changed.VM = vmWith("root", "build-agent-root")
	same(t, "after an edit", first, macsOf(changed))
	swapped := observe(withMACs("", ""))
	n := swapped.Machine.Spec.Networks
	n[0], n[1] = n[1], n[0]
	same(t, "in another order", []string{first[1], first[0]}, macsOf(swapped))

	seen := map[string]string{}
	for at, change := range map[string]func(o *vitistack.Observed){
		"as it is": func(*vitistack.Observed) {}, "namespace": func(o *vitistack.Observed) { o.Machine.Namespace = "other" },
		"name": func(o *vitistack.Observed) { o.Machine.Name = "other" }, "UID": func(o *vitistack.Observed) { o.Machine.UID = "other" },
		"setting": func(o *vitistack.Observed) { o.Settings.MACSet = 0xfe },
	} {
		other := observe(withMACs("", ""))
		change(&other)
		for _, mac := range macsOf(other) {
			if seen[mac] != "" {
				t.Errorf("%s and %s have the address %s", at, seen[mac], mac)
			}
			seen[mac] = at
			if address, err := net.ParseMAC(mac); err != nil || len(address) != 6 || address[0] != 2 {
				t.Errorf("%s: %s is no unicast address that is administered locally (%v)", at, mac, err)
			}
		}
	}
}

func TestGivenAddresses(t *testing.T) {
	bad := func(mac string) []string {
		return []string{fmt.Sprintf("InvalidSpec: the macAddress %q of interface eth0 is no unicast address of 6 octets, for example 52:54:00:12:34:56", mac)}
	}
	for given, test := range map[string]struct {
		want     string
		problems []string
	}{
		"52:54:00:AA:00:01": {"52:54:00:aa:00:01", nil}, "52-54-00-aa-00-01": {"52:54:00:aa:00:01", nil},
		"01:00:5e:00:00:01": {"", bad("01:00:5e:00:00:01")}, "00:00:00:00:00:00": {"", bad("00:00:00:00:00:00")},
		"52:54:00:aa:00": {"", bad("52:54:00:aa:00")}, "52:54:00:aa:00:01:02:03": {"", bad("52:54:00:aa:00:01:02:03")}, "x": {"", bad("x")},
	} {
		o := observe(withMACs(given, ""))
		o.Networks = map[string]*v1alpha1.NetworkConfiguration{"lan": network("lan", "br1", 0, ready("True", 2))}
		s := vitistack.Plan(o)
		same(t, given, []any{test.want, test.problems}, []any{s.Wanted.Interfaces[0].MAC, said(s)})
	}
}

// another returns a Machine of the namespace that is older or younger than that of machineOf.
func another(name string, uid types.UID, second int64, spec v1alpha1.MachineSpec) v1alpha1.Machine {
	m := machineOf(spec)
	m.Name, m.UID, m.CreationTimestamp = name, uid, metav1.Unix(second, 0)
	return *m
}

// TestAddressesOfOtherMachines: the older one keeps an address.
func TestAddressesOfOtherMachines(t *testing.T) {
	const given = "52:54:00:aa:00:01"
	derived := macsOf(observe(withMACs("", "")))
	next := func(index int) string { return vitistack.MACsOf(machineOf(withMACs("", "")), settings.MACSet)[index] }
	conflict := []string{"InvalidSpec: the macAddress 52:54:00:aa:00:01 of interface eth0 is that of Machine ci/other, which is older; change it, or remove it for one that is derived"}
	for name, test := range map[string]struct {
		own      v1alpha1.MachineSpec
		other    v1alpha1.Machine
		want     []string
		problems []string
	}{
		"another address":                  {withMACs(given, ""), another("other", "a", 1, withMACs("52:54:00:aa:00:02", "")), []string{given, derived[1]}, nil},
		"given twice, this one younger":    {withMACs(given, ""), another("other", "a", 1, withMACs("52-54-00-AA-00-01", "")), []string{given, derived[1]}, conflict},
		"given twice, this one older":      {withMACs(given, ""), another("other", "a", 200, withMACs(given, "")), []string{given, derived[1]}, nil},
		"given twice in one second":        {withMACs(given, ""), another("other", "0", 100, withMACs(given, "")), []string{given, derived[1]}, conflict},
		"and its UID comes later":          {withMACs(given, ""), another("other", "z", 100, withMACs(given, "")), []string{given, derived[1]}, nil},
		"given is what this one derives":   {withMACs("", ""), another("other", "a", 1, withMACs(derived[0], "")), []string{next(1), derived[1]}, nil},
		"so are two":                       {withMACs("", ""), another("other", "a", 1, withMACs(derived[0], next(1))), []string{next(2), derived[1]}, nil},
		"by a younger one":                 {withMACs("", ""), another("other", "a", 200, withMACs(derived[0], "")), derived, nil},
		"by a Machine of another provider": {withMACs("", ""), another("other", "a", 1, proxmox(withMACs(derived[0], ""))), derived, nil},
		"an interface of its own":          {withMACs("", derived[0]), another("other", "a", 1, withMACs("", "")), []string{next(1), derived[0]}, nil},
		"two of its own": {withMACs(given, "52-54-00-aa-00-01"), another("other", "a", 1, withMACs("", "")), []string{given, given},
			[]string{"InvalidSpec: interfaces eth0 and eth1 have the macAddress 52:54:00:aa:00:01; change one"}},
	} {
		o := observe(test.own)
		o.MACs = vitistack.TakenMACs(o.Machine, settings.MACSet, []v1alpha1.Machine{*o.Machine, test.other})
		o.Networks = map[string]*v1alpha1.NetworkConfiguration{"lan": network("lan", "br1", 0, ready("True", 2))}
		s := vitistack.Plan(o)
		same(t, name, []any{test.want, test.problems}, []any{macsOf(o), said(s)})
	}

	all := withMACs("", "")
	for _, mac := range vitistack.MACsOf(machineOf(withMACs("", "")), settings.MACSet)[:4] {
		all.Networks = append(all.Networks, v1alpha1.Network{Name: strings.ReplaceAll(mac, ":", ""), NetworkName: "lan", MACAddress: mac})
	}
	o := observe(withMACs("", ""))
	o.MACs = vitistack.TakenMACs(o.Machine, settings.MACSet, []v1alpha1.Machine{another("other", "a", 1, all)})
	o.Networks = map[string]*v1alpha1.NetworkConfiguration{"lan": network("lan", "br1", 0, ready("True", 2))}
	same(t, "all candidates", []string{"InvalidSpec: no derived MAC address of interface eth0 is free; set its macAddress"}, said(vitistack.Plan(o)))
}

// TestAGuestKeepsItsAddress over another setting, and from vitistack's operator, unless it is someone else's by now.
func TestAGuestKeepsItsAddress(t *testing.T) {
	const former = "02:12:9e:01:02:03"
	derived := macsOf(observe(withMACs("", "")))
	with := func(mac string) *kubevirtv1.VirtualMachine {
		vm := vmWith("root", "build-agent-root")
		vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "eth0", MacAddress: mac}}
		return vm
	}
	foreign := with(former)
	foreign.Labels = nil
	holder := another("other", "a", 1, withMACs("", ""))
	holder.Status.NetworkInterfaces = []v1alpha1.NetworkInterfaceStatus{{Name: "eth0", MACAddress: former}, {Name: "guest0", MACAddress: derived[0]}}
	for name, test := range map[string]struct {
		own   v1alpha1.MachineSpec
		vm    *kubevirtv1.VirtualMachine
		other v1alpha1.Machine
		want  []string
	}{
		"it has another one":            {withMACs("", ""), with(former), another("other", "a", 1, withMACs("", "")), []string{former, derived[1]}},
		"it is asked for another one":   {withMACs("52:54:00:aa:00:01", ""), with(former), another("other", "a", 1, withMACs("", "")), []string{"52:54:00:aa:00:01", derived[1]}},
		"another interface is given it": {withMACs("", former), with(former), another("other", "a", 1, withMACs("", "")), []string{derived[0], former}},
		"an older Machine is given it":  {withMACs("", ""), with(former), another("other", "a", 1, withMACs(former, "")), derived},
		"an older Machine has it":       {withMACs("", ""), with(former), holder, derived},
		"it is for groups":              {withMACs("", ""), with("03:12:9e:01:02:03"), another("other", "a", 1, withMACs("", "")), derived},
		"it is of a foreign machine":    {withMACs("", ""), foreign, another("other", "a", 1, withMACs("", "")), derived},
	} {
		o := observe(test.own)
		o.VM = test.vm
		o.Machine.Status.NetworkInterfaces = []v1alpha1.NetworkInterfaceStatus{{Name: "eth0", MACAddress: former}}
		o.MACs = vitistack.TakenMACs(o.Machine, settings.MACSet, []v1alpha1.Machine{*o.Machine, test.other})
		same(t, name, test.want, macsOf(o))
	}
}

func proxmox(spec v1alpha1.MachineSpec) v1alpha1.MachineSpec {
	spec.Provider = "proxmox"
	return spec
}

// TestNoTwoMachinesShareAnAddress: 2,000 Machines, each of which evades the older ones.
func TestNoTwoMachinesShareAnAddress(t *testing.T) {
	seen := map[string]string{}
	for i := range 2000 {
		m := another(fmt.Sprintf("m-%d", i), types.UID(fmt.Sprintf("uid-%d", i)), int64(i), v1alpha1.MachineSpec{Template: "small"})
		o := observe(m.Spec)
		o.Machine = &m
		mac := vitistack.Plan(o).Wanted.Interfaces[0].MAC
		if seen[mac] != "" {
			t.Errorf("%s and %s have the address %s", m.Name, seen[mac], mac)
		}
		seen[mac] = m.Name
	}
}
