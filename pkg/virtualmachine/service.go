package virtualmachine

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// LoadBalancer are the operator's settings for Services of type LoadBalancer, by which displays are reached.
type LoadBalancer struct {
	// Labels and Annotations are those of each Service, unless a VirtualMachine says something else.
	Labels, Annotations map[string]string
}

// servicePort is the name of the port, as VM-Operator has it.
const servicePort = "spice"

// Service returns the Service of the machine's display; nil if it gets none: the operator is not set up for it, the user
// does not want it (an empty loadBalancerService), the display is served at the loopback address of its pod, or the name
// of the machine is none of a Service, because it begins with a digit.
func (s *State) Service() *corev1.Service {
	wanted := s.VM.Spec.LoadBalancerService
	none := wanted != nil && len(wanted.Labels)+len(wanted.Annotations) == 0
	if s.Settings.LoadBalancer == nil || none || !s.isServed() || len(validation.IsDNS1035Label(s.VM.Name)) > 0 {
		return nil
	}
	service := &corev1.Service{ObjectMeta: s.ObjectMeta(s.VM.Name)}
	labels, annotations := maps.Clone(s.Settings.LoadBalancer.Labels), maps.Clone(s.Settings.LoadBalancer.Annotations)
	if wanted != nil {
		labels, annotations = merged(labels, wanted.Labels), merged(annotations, wanted.Annotations)
	}
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, service.Labels) // the operator's own win
	service.Labels, service.Annotations = labels, annotations
	display := s.Machine.Display
	if there := s.started(); there != nil {
		display = there.Display
	}
	port := display.SPICE.Port
	service.Spec = corev1.ServiceSpec{
		Type:     corev1.ServiceTypeLoadBalancer,
		Selector: map[string]string{LabelName: Runner, LabelInstance: s.VM.Name},
		Ports: []corev1.ServicePort{{
			Name: servicePort, Protocol: corev1.ProtocolTCP, Port: int32(port), TargetPort: intstr.FromInt(port), //nolint:gosec // G115: the API server checks it
		}},
	}
	return service
}

// isServed returns whether viewers outside the pod reach the display of the machine in the pod or, if there is none, of the
// next one. It is served to them if they need a password for it, and if the pod has an address besides its guest's.
func (s *State) isServed() bool {
	if there := s.started(); there != nil {
		return there.Display.SPICE.Password && !there.Has(vmconfig.NetworkPod)
	}
	return s.Display.hasPassword() && !s.Machine.Has(vmconfig.NetworkPod)
}

// started returns the machine in the pod; nil if there is none, or it has no SPICE display.
func (s *State) started() *vmconfig.Machine {
	if s.Pod == nil {
		return nil
	}
	there, err := vmconfig.Decode(machineOfPod(s.Pod, s.VM.Name))
	if err != nil || there.Display == nil || there.Display.SPICE == nil {
		return nil
	}
	return &there
}

// merged returns texts with those of a VirtualMachine over them; one that is null is removed.
func merged[T ~string](under map[string]string, over map[string]*T) map[string]string {
	if under == nil {
		under = map[string]string{}
	}
	for name, text := range over {
		if text == nil {
			delete(under, name)
			continue
		}
		under[name] = string(*text)
	}
	return under
}
