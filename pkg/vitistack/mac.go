package vitistack

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// candidates is how many addresses an interface may get. The first one is free, except where 32 bits of two hashes are
// equal or a user gives an address that another Machine derives.
const candidates = 4

// derivedMAC returns an address that an interface of a Machine may get. It is a function of the Machine alone, so it
// survives restarts of the operator and of the VirtualMachine, and the UID keeps Machines of one name apart. The first
// octet marks a unicast address that is administered locally (IEEE 802-2014, 8.4).
func derivedMAC(m *v1alpha1.Machine, set byte, of string, candidate int) string {
	text := fmt.Sprintf("%s/%s/%s/%s", m.Namespace, m.Name, m.UID, of)
	if candidate > 0 {
		text += fmt.Sprintf("/%d", candidate)
	}
	sum := sha256.Sum256([]byte(text))
	return net.HardwareAddr{2, set, sum[0], sum[1], sum[2], sum[3]}.String()
}

// givenMAC returns an address of a spec in lower case with colons. ok is false if it is no unicast address of 6 octets.
func givenMAC(text string) (mac string, ok bool) {
	address, err := net.ParseMAC(text)
	if err != nil || len(address) != 6 || address[0]&1 != 0 || strings.Trim(address.String(), "0:") == "" {
		return "", false
	}
	return address.String(), true
}

// MACsOf returns the MAC addresses that a Machine has or may get: those of its spec, and for interfaces without one
// that of the status and the candidates. Machines of other providers have none. set is the second octet of derived
// addresses. It is the function of an index over Machines.
func MACsOf(m *v1alpha1.Machine, set byte) []string {
	if !Handles(m) {
		return nil
	}
	var macs []string
	for _, n := range networksOf(&m.Spec) {
		if n.MACAddress != "" {
			if mac, ok := givenMAC(n.MACAddress); ok {
				macs = append(macs, mac)
			}
			continue
		}
		for candidate := range candidates {
			macs = append(macs, derivedMAC(m, set, n.Name, candidate))
		}
		for _, shown := range m.Status.NetworkInterfaces {
			if mac, ok := givenMAC(shown.MACAddress); ok && shown.Name == n.Name && !slices.Contains(macs, mac) {
				macs = append(macs, mac)
			}
		}
	}
	return macs
}

// TakenMACs returns Observed.MACs of a Machine. others are Machines of its namespace that have an address of MACsOf(m), or
// all of them; m itself may be among them.
func TakenMACs(m *v1alpha1.Machine, set byte, others []v1alpha1.Machine) map[string]string {
	own := map[string]bool{}
	for _, mac := range MACsOf(m, set) {
		own[mac] = true
	}
	taken := map[string]string{}
	for i := range others {
		if !older(&others[i], m) {
			continue
		}
		for _, mac := range MACsOf(&others[i], set) {
			if own[mac] {
				taken[mac] = others[i].Name
			}
		}
	}
	return taken
}

// older returns whether a was created before b. Among those of one second the UID decides.
func older(a, b *v1alpha1.Machine) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// macs returns the addresses of interfaces: first those that the spec gives, then the others, so that these evade them.
func (p *plan) macs(networks []v1alpha1.Network) []string {
	macs, used := make([]string, len(networks)), map[string]string{}
	for i, n := range networks {
		if n.MACAddress == "" {
			continue
		}
		mac, ok := givenMAC(n.MACAddress)
		switch {
		case !ok:
			p.report(v1alpha1.InvalidSpec, "the macAddress %q of interface %s is no unicast address of 6 octets, for example 52:54:00:12:34:56", n.MACAddress, n.Name)
			continue
		case used[mac] != "":
			p.report(v1alpha1.InvalidSpec, "interfaces %s and %s have the macAddress %s; change one", used[mac], n.Name, mac)
		case p.MACs[mac] != "":
			p.report(v1alpha1.InvalidSpec, "the macAddress %s of interface %s is that of Machine %s/%s, which is older; change it, or remove it for one that is derived", mac, n.Name, p.Machine.Namespace, p.MACs[mac])
		}
		macs[i], used[mac] = mac, n.Name
	}
	for i, n := range networks {
		if n.MACAddress == "" {
			macs[i] = p.derive(n.Name, used)
			used[macs[i]] = n.Name
		}
	}
	return macs
}

// derive returns the address that the VirtualMachine has for an interface: a guest knows its interface by it, and it may
// come from vitistack's operator or from a former setting. Otherwise, or if that is not free, it is the first candidate that
// is. A user who may change the VirtualMachine may change the address.
func (p *plan) derive(of string, used map[string]string) string {
	if mac := p.present(of); mac != "" && used[mac] == "" && p.MACs[mac] == "" {
		return mac
	}
	for candidate := range candidates {
		mac := derivedMAC(p.Machine, p.Settings.MACSet, of, candidate)
		if used[mac] == "" && p.MACs[mac] == "" {
			return mac
		}
	}
	p.report(v1alpha1.InvalidSpec, "no derived MAC address of interface %s is free; set its macAddress", of)
	return ""
}

// present returns the address that the Machine's VirtualMachine has for an interface; empty for none.
func (p *plan) present(of string) string {
	if p.VM == nil || p.VM.Spec.Template == nil || !p.owns(p.VM) {
		return ""
	}
	for _, i := range p.VM.Spec.Template.Spec.Domain.Devices.Interfaces {
		if mac, ok := givenMAC(i.MacAddress); ok && i.Name == of {
			return mac
		}
	}
	return ""
}
