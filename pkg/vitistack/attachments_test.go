package vitistack_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// TestAttachmentConfig: the configuration is that of the reference page, byte by byte.
func TestAttachmentConfig(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.NetworkConfigurationSpec
		want string
	}{
		"a bridge and a VLAN": {
			v1alpha1.NetworkConfigurationSpec{Bridge: "br-lan", VLAN: 100},
			`{"cniVersion":"1.0.0","name":"br-lan","plugins":[{"type":"bridge","bridge":"br-lan","ipam":{},"vlan":100}]}`,
		},
		"a bridge": {
			v1alpha1.NetworkConfigurationSpec{Bridge: "br-lan"},
			`{"cniVersion":"1.0.0","name":"br-lan","plugins":[{"type":"bridge","bridge":"br-lan","ipam":{}}]}`,
		},
		"a VLAN": {
			v1alpha1.NetworkConfigurationSpec{VLAN: 4094},
			`{"cniVersion":"1.0.0","name":"br0","plugins":[{"type":"bridge","bridge":"br0","ipam":{},"vlan":4094}]}`,
		},
		"neither": {v1alpha1.NetworkConfigurationSpec{Description: "of pods"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, needed := vitistack.AttachmentConfig(&v1alpha1.NetworkConfiguration{Spec: test.spec}, "1.0.0")
			if diff := cmp.Diff(test.want, got); diff != "" || needed != (test.want != "") {
				t.Errorf("needed: %t (-want +got):\n%s", needed, diff)
			}
		})
	}
}

// machine has an interface eth0 on network front, which a status shows with an address.
func machine(name string, change func(*v1alpha1.Machine)) v1alpha1.Machine {
	m := v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name},
		Spec:       v1alpha1.MachineSpec{Networks: []v1alpha1.Network{{Name: "eth0", NetworkName: "front"}}},
		Status: v1alpha1.MachineStatus{
			VMName: name, NodeName: "node-1",
			NetworkInterfaces: []v1alpha1.NetworkInterfaceStatus{{Name: "eth0", MACAddress: "02:12:00:00:00:01", IPAddresses: []string{"10.0.0.1"}}},
		},
	}
	if change != nil {
		change(&m)
	}
	return m
}

func TestAttachments(t *testing.T) {
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	shown := v1alpha1.Attachment{Machine: "a", Interface: "eth0", MACAddress: "02:12:00:00:00:01", IPAddresses: []string{"10.0.0.1"}, NodeName: "node-1"}
	for name, test := range map[string]struct {
		machines []v1alpha1.Machine
		want     []v1alpha1.Attachment
	}{
		"no Machine":             {nil, nil},
		"one Machine":            {[]v1alpha1.Machine{machine("a", nil)}, []v1alpha1.Attachment{shown}},
		"in another namespace":   {[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) { m.Namespace = "shop" })}, nil},
		"of another provider":    {[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) { m.Spec.Provider = "proxmox" })}, nil},
		"on another network":     {[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) { m.Spec.Networks[0].NetworkName = "back" })}, nil},
		"on the network of pods": {[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) { m.Spec.Networks = nil })}, nil},
		"being deleted, with its VirtualMachine": {
			[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) { m.DeletionTimestamp = deleted })}, []v1alpha1.Attachment{shown},
		},
		"being deleted, without its VirtualMachine": {
			[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) { m.DeletionTimestamp, m.Status.VMName = deleted, "" })}, nil,
		},
		"with more addresses than a guest needs": {
			[]v1alpha1.Machine{machine("a", func(m *v1alpha1.Machine) {
				m.Status.NetworkInterfaces[0].IPAddresses = slices.Repeat([]string{"10.0.0.1"}, 32)
			})},
			[]v1alpha1.Attachment{{
				Machine: "a", Interface: "eth0", MACAddress: shown.MACAddress, IPAddresses: slices.Repeat([]string{"10.0.0.1"}, 8), NodeName: "node-1",
			}},
		},
		"two Machines, one with two interfaces and no status": {
			[]v1alpha1.Machine{machine("b", func(m *v1alpha1.Machine) {
				m.Spec.Networks = []v1alpha1.Network{{Name: "eth1", NetworkName: "front"}, {Name: "eth0", NetworkName: "front", MACAddress: "52-54-00-AA-00-01"}}
				m.Status = v1alpha1.MachineStatus{}
			}), machine("a", nil)},
			[]v1alpha1.Attachment{shown, {Machine: "b", Interface: "eth0", MACAddress: "52:54:00:aa:00:01"}, {Machine: "b", Interface: "eth1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			network := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "front"}}
			if diff := cmp.Diff(test.want, vitistack.Attachments(network, test.machines)); diff != "" {
				t.Errorf("the attachments are others (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNetworkStatus: the conditions follow the handler, and nothing of another operator is changed.
func TestNetworkStatus(t *testing.T) {
	foreign := v1alpha1.NetworkConfigurationStatus{
		Conditions:        []metav1.Condition{{Type: "Allocated", Status: "True", Reason: "Kea"}},
		NetworkInterfaces: []v1alpha1.AssignedInterface{{Name: "eth0", IPv4Addresses: []string{"10.0.0.1"}}},
		Phase:             "Ready", Status: "ok", Message: "by kea", Created: &metav1.Time{Time: time.Unix(1, 0)},
	}
	for name, test := range map[string]struct {
		bridge  string
		result  chain.Result
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"the attachment is there":  {"br0", chain.Result{Outcome: chain.Done()}, "True", v1alpha1.ReasonAttachmentCreated, "NetworkAttachmentDefinition front"},
		"none is needed":           {"", chain.Result{Outcome: chain.Done()}, "True", v1alpha1.ReasonAttachmentNotNeeded, "neither bridge nor vlan is set: Machines are attached to the network of pods"},
		"the API server refuses":   {"br0", chain.Result{Err: problem.Newf("Refused", "no")}, "False", v1alpha1.ReasonAttachmentFailed, "no"},
		"Multus is not installed":  {"br0", chain.Result{Outcome: chain.Wait("NoMultus", "Multus is not installed", 0)}, "False", v1alpha1.ReasonAttachmentFailed, "Multus is not installed"},
		"two things fail":          {"br0", chain.Result{Err: errors.Join(problem.Newf("Refused", "a"), errors.New("b"))}, "False", v1alpha1.ReasonAttachmentFailed, "a; b"},
		"the former one cannot go": {"", chain.Result{Err: problem.Newf("Refused", "no")}, "False", v1alpha1.ReasonAttachmentFailed, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			network := &v1alpha1.NetworkConfiguration{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "front", Generation: 2},
				Spec:       v1alpha1.NetworkConfigurationSpec{Bridge: test.bridge}, Status: foreign,
			}
			machines := []v1alpha1.Machine{machine("a", nil)}
			got := vitistack.NetworkStatus(network, machines, []chain.Result{test.result}, time.Unix(100, 5))
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionAttachmentReady} {
				c := meta.FindStatusCondition(got.Conditions, kind)
				want := metav1.Condition{Type: kind, Status: test.status, Reason: test.reason, Message: test.message, ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(time.Unix(100, 0))}
				if diff := cmp.Diff(&want, c); diff != "" {
					t.Errorf("%s is another one (-want +got):\n%s", kind, diff)
				}
			}
			network.Status = got
			if diff := cmp.Diff(got, vitistack.NetworkStatus(network, machines, []chain.Result{test.result}, time.Unix(200, 0))); diff != "" {
				t.Errorf("another pass writes again:\n%s", diff)
			}
			rest := got
			rest.Conditions, rest.Attachments = rest.Conditions[:1], nil
			if diff := cmp.Diff(foreign, rest); diff != "" || len(got.Attachments) != 1 {
				t.Errorf("%d attachments, and what others wrote is changed:\n%s", len(got.Attachments), diff)
			}
		})
	}
}

// TestALargeNetworkFitsIntoItsStatus: the API server would refuse an object with all interfaces.
func TestALargeNetworkFitsIntoItsStatus(t *testing.T) {
	network := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "front"}, Spec: v1alpha1.NetworkConfigurationSpec{Bridge: "br0"}}
	for count, want := range map[int]string{
		500: "NetworkAttachmentDefinition front",
		501: "NetworkAttachmentDefinition front; status.attachments shows 500 of 501 interfaces",
	} {
		var machines []v1alpha1.Machine
		for i := range count {
			machines = append(machines, machine(fmt.Sprintf("m%03d", i), nil))
		}
		got := vitistack.NetworkStatus(network, machines, []chain.Result{{Outcome: chain.Done()}}, time.Unix(100, 0))
		if c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady); len(got.Attachments) != 500 || c.Message != want {
			t.Errorf("%d interfaces: %d are shown, and the message is %q, want %q", count, len(got.Attachments), c.Message, want)
		}
	}
}
