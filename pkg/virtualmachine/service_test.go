package virtualmachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// TestServiceOfADisplay covers what the operator and a user may say about it.
func TestServiceOfADisplay(t *testing.T) {
	settings := &LoadBalancer{Labels: map[string]string{"team": "a", LabelName: "forged"}, Annotations: map[string]string{"pool": "p", "zone": "z"}}
	value := func(s string) *v1.NullableLabelValue { return ptr.To(v1.NullableLabelValue(s)) }
	for name, test := range map[string]struct {
		settings    *LoadBalancer
		wanted      *v1.LoadBalancerService
		password    bool
		labels      map[string]string
		annotations map[string]string
	}{
		"not set up":           {nil, &v1.LoadBalancerService{Labels: map[string]*v1.NullableLabelValue{"a": value("b")}}, true, nil, nil},
		"set up":               {settings, nil, true, map[string]string{"team": "a"}, map[string]string{"pool": "p", "zone": "z"}},
		"without extras":       {&LoadBalancer{}, nil, true, map[string]string{}, nil},
		"not wanted":           {settings, &v1.LoadBalancerService{}, true, nil, nil},
		"without a password":   {settings, nil, false, nil, nil},
		"with the user's":      {settings, &v1.LoadBalancerService{Labels: map[string]*v1.NullableLabelValue{"team": value("b"), LabelInstance: value("forged")}}, true, map[string]string{"team": "b"}, map[string]string{"pool": "p", "zone": "z"}},
		"without one of these": {settings, &v1.LoadBalancerService{Annotations: map[string]*v1.NullableText{"pool": nil, "other": ptr.To(v1.NullableText(""))}}, true, map[string]string{"team": "a"}, map[string]string{"zone": "z", "other": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try", UID: "uid"}}
			vm.Spec.LoadBalancerService, vm.Spec.VM.Display = test.wanted, &v1.Display{SPICE: &v1.SPICE{Port: 5901, GenerateSecret: &test.password}}
			service := Plan(Observed{VM: vm, Settings: Settings{LoadBalancer: test.settings}}).Service()
			if (service == nil) != (test.labels == nil) {
				t.Fatalf("the Service is %+v", service)
			}
			if service == nil {
				return
			}
			wantLabels := Labels("try", test.labels)
			if diff := cmp.Diff([]any{wantLabels, test.annotations}, []any{service.Labels, service.Annotations}); diff != "" {
				t.Errorf("labels and annotations (-want +got):\n%s", diff)
			}
			if p := service.Spec.Ports[0]; service.Spec.Type != corev1.ServiceTypeLoadBalancer || p.Name != "spice" || p.Port != 5901 || p.TargetPort.IntValue() != 5901 {
				t.Errorf("it is %+v", service.Spec)
			}
		})
	}
	if settings.Labels["team"] != "a" || settings.Annotations["pool"] != "p" {
		t.Errorf("the settings have become %+v", settings)
	}
}

// TestServiceFollowsTheDisplayOfTheRunningMachine, also after the display was removed from the declaration.
func TestServiceFollowsTheDisplayOfTheRunningMachine(t *testing.T) {
	displayed := func(cards ...v1.Network) *v1.VirtualMachine {
		vm := networked(cards...)
		vm.Spec.VM.Display = &v1.Display{Outputs: 1, SPICE: &v1.SPICE{Port: 5901, GenerateSecret: ptr.To(true)}}
		return vm
	}
	for name, test := range map[string]struct {
		running, wanted *v1.VirtualMachine
		port            int32
	}{
		"the same":                 {displayed(userCard), displayed(userCard), 5901},
		"the display is removed":   {displayed(userCard), networked(userCard), 5901},
		"SPICE is removed":         {displayed(userCard), machine(func(vm *v1.VirtualMachine) { vm.Spec.VM.Display = &v1.Display{Outputs: 1} }), 5901},
		"a guest that has the pod": {displayed(podCard), displayed(podCard), 0},
		"a guest that will":        {displayed(userCard), displayed(podCard), 5901},
		"none runs":                {nil, displayed(podCard), 0},
	} {
		o := Observed{VM: test.wanted, Settings: Settings{LoadBalancer: &LoadBalancer{}}}
		if test.running != nil {
			o.Pod = runningPod(t, test.running)
		}
		s := Plan(o)
		_ = s.Ignored()
		var port int32
		if service := s.Service(); service != nil {
			port = service.Spec.Ports[0].Port
		}
		if port != test.port {
			t.Errorf("%s: the Service has the port %d, want %d", name, port, test.port)
		}
	}
}
