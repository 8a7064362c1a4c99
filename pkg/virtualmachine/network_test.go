package virtualmachine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

var (
	userCard = v1.Network{User: &v1.UserNetwork{Device: "e1000"}}
	podCard  = v1.Network{Pod: &v1.PodNetwork{Device: "virtio-net-pci"}}
	tapCard  = v1.Network{Tap: &v1.Tap{Device: "virtio-net", Bridge: "br0", MAC: ptr.To("52:54:00:12:34:56")}}
	otherTap = v1.Network{Tap: &v1.Tap{Device: "virtio-net", Bridge: "br1"}}
)

func networked(cards ...v1.Network) *v1.VirtualMachine {
	return machine(func(vm *v1.VirtualMachine) { vm.Spec.VM.Networks = cards })
}

// TestPodHasTheRightsThatItsNetworksNeed and no others.
func TestPodHasTheRightsThatItsNetworksNeed(t *testing.T) {
	plugins := []string{"devices.example.org/kvm", "devices.example.org/tun"}
	type rights struct {
		Host, Privileged bool
		Devices          int
		Net              []corev1.Capability
	}
	for name, test := range map[string]struct {
		cards   []v1.Network
		tcg     bool
		plugins []string
		want    rights
	}{
		"user":                              {[]v1.Network{userCard}, false, nil, rights{Privileged: true}},
		"user, emulated":                    {[]v1.Network{userCard}, true, nil, rights{}},
		"user, device plugin":               {[]v1.Network{userCard}, false, plugins, rights{Devices: 2}},
		"user, device plugin, emulated":     {[]v1.Network{userCard}, true, plugins, rights{}},
		"pod":                               {[]v1.Network{podCard}, false, nil, rights{Privileged: true}},
		"pod, emulated":                     {[]v1.Network{podCard}, true, nil, rights{Privileged: true}},
		"pod, device plugin":                {[]v1.Network{podCard}, false, plugins, rights{Devices: 2, Net: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}},
		"pod, device plugin, emulated":      {[]v1.Network{podCard}, true, plugins, rights{Devices: 2, Net: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}},
		"tap":                               {[]v1.Network{tapCard}, false, nil, rights{Host: true, Privileged: true}},
		"tap, device plugin":                {[]v1.Network{tapCard}, false, plugins, rights{Host: true, Devices: 2, Net: []corev1.Capability{"NET_ADMIN"}}},
		"tap and user, device plugin":       {[]v1.Network{userCard, tapCard}, true, plugins, rights{Host: true, Devices: 2, Net: []corev1.Capability{"NET_ADMIN"}}},
		"tap that is not allowed":           {[]v1.Network{otherTap}, false, plugins, rights{Devices: 2}},
		"tap that is not allowed, emulated": {[]v1.Network{otherTap}, true, nil, rights{}},
		"none":                              {[]v1.Network{}, true, nil, rights{}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := networked(test.cards...)
			if test.tcg {
				vm.Spec.VM.Acceleration = v1.AccelerationTCG
			}
			template, err := Plan(Observed{VM: vm, Settings: Settings{Bridges: []string{"br0"}, DeviceResources: test.plugins}}).Template()
			if err != nil {
				t.Fatal(err)
			}
			container := template.Spec.Containers[0]
			got := rights{
				Host: template.Spec.HostNetwork, Privileged: ptr.Deref(container.SecurityContext.Privileged, false), Devices: len(container.Resources.Limits),
			}
			if c := container.SecurityContext.Capabilities; c != nil {
				if beyond := len(capabilities); len(c.Add) > beyond {
					got.Net = c.Add[beyond:]
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the rights of the pod differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBridgesOfHostsHaveToBeAllowed: a machine is not started without its network. One that runs is left, and not started
// again, even if its StatefulSet cannot be applied.
func TestBridgesOfHostsHaveToBeAllowed(t *testing.T) {
	only := Settings{Bridges: []string{"br0"}}
	for name, test := range map[string]struct {
		settings  Settings
		was       int32
		runs      bool
		forbidden []string
		replicas  int32
		mustStop  bool
	}{
		"both are allowed":                 {Settings{Bridges: []string{"br1", "br0"}}, 0, false, nil, 1, false},
		"one is not, stopped":              {only, 0, false, []string{"br1"}, 0, false},
		"one is not, starting":             {only, 1, false, []string{"br1"}, 0, true},
		"one is not, running":              {only, 1, true, []string{"br1"}, 1, false},
		"none is, running":                 {Settings{}, 1, true, []string{"br0", "br1"}, 1, false},
		"both are allowed again, starting": {Settings{Bridges: []string{"br1", "br0"}}, 1, false, nil, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			vm := networked(tapCard, otherTap, otherTap)
			vm.Status.Conditions = []metav1.Condition{{Type: ConditionObjects, Status: metav1.ConditionFalse}}
			o := Observed{VM: vm, Settings: test.settings, StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(test.was)}}}
			if test.runs {
				o.Pod = runningPod(t, vm)
			}
			s := Plan(o)
			set, err := s.StatefulSet()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]any{test.forbidden, test.replicas, test.mustStop}, []any{s.ForbiddenBridges(), *set.Spec.Replicas, s.MustStop()}); diff != "" {
				t.Errorf("the forbidden bridges, the replicas, and whether it must stop (-want +got):\n%s", diff)
			}
			if want := "name the bridge " + strings.Join(test.forbidden, ", ") + ", and the operator's setting"; test.forbidden != nil && (s.Err == nil || !strings.Contains(s.Err.Error(), want)) {
				t.Errorf("the condition says %v, want %q", s.Err, want)
			}
			for _, variable := range set.Spec.Template.Spec.Containers[0].Env {
				for _, bridge := range test.forbidden {
					if strings.Contains(variable.Value, bridge) {
						t.Errorf("the template names %s: %s", bridge, variable.Value)
					}
				}
			}
		})
	}
	want := []vmconfig.Network{{Type: vmconfig.NetworkUser, Device: "virtio-net", MAC: "52:54:00:12:34:56", Isolated: true}}
	if diff := cmp.Diff(want, Plan(Observed{VM: networked(tapCard)}).Machine.Networks); diff != "" {
		t.Errorf("the card differs (-want +got):\n%s", diff)
	}
}

// TestSchedulerKnowsThePortOfADisplayOnItsHost, and only there.
func TestSchedulerKnowsThePortOfADisplayOnItsHost(t *testing.T) {
	for name, test := range map[string]struct {
		card v1.Network
		want []corev1.ContainerPort
	}{
		"tap":  {tapCard, []corev1.ContainerPort{{Name: "spice", ContainerPort: 5910, HostPort: 5910, Protocol: corev1.ProtocolTCP}}},
		"user": {userCard, nil},
		"pod":  {podCard, nil},
	} {
		vm := networked(test.card)
		vm.Spec.VM.Display = &v1.Display{Outputs: 1, SPICE: &v1.SPICE{Port: 5910}}
		template, err := Plan(Observed{VM: vm, Settings: Settings{Bridges: []string{"br0"}}}).Template()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, template.Spec.Containers[0].Ports); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestUserCardBesideATapIsNamed in the condition, because it leads nowhere.
func TestUserCardBesideATapIsNamed(t *testing.T) {
	for _, test := range []struct {
		cards []v1.Network
		named bool
	}{{[]v1.Network{tapCard, userCard}, true}, {[]v1.Network{tapCard}, false}, {[]v1.Network{userCard}, false}, {[]v1.Network{userCard, otherTap}, false}} {
		notes := Plan(Observed{VM: networked(test.cards...), Settings: Settings{Bridges: []string{"br0"}}}).Ignored()
		if named := slices.ContainsFunc(notes, func(note string) bool { return strings.HasPrefix(note, "vm.networks: ") }); named != test.named {
			t.Errorf("%+v: the notes are %q", test.cards, notes)
		}
	}
}

// TestGuestOfAPodsNetworkIsTiedToNoAddress, unless the user writes a configuration.
func TestGuestOfAPodsNetworkIsTiedToNoAddress(t *testing.T) {
	for name, test := range map[string]struct {
		card   v1.Network
		config string
		want   string
	}{
		"pod":          {podCard, "", podNetwork},
		"pod, own one": {podCard, `{"version": 1}`, "version: 1\n"},
		"user":         {userCard, "", ""},
	} {
		vm := networked(test.card)
		vm.Spec.CloudInit = &v1.CloudInit{}
		if test.config != "" {
			vm.Spec.CloudInit.NetworkConfig = &runtime.RawExtension{Raw: []byte(test.config)}
		}
		if got := string(Plan(Observed{VM: vm}).CloudInit.Files[fileNetwork]); got != test.want {
			t.Errorf("%s: the configuration is %q, want %q", name, got, test.want)
		}
	}
}
