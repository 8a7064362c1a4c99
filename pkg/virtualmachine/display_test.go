package virtualmachine

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// TestWhichSecretHasThePassword covers every combination of what the user declares and which Secrets exist.
func TestWhichSecretHasThePassword(t *testing.T) {
	own := metav1.ObjectMeta{Name: "try-display-secret", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{{UID: "uid", Controller: ptr.To(true)}}}
	foreign := metav1.ObjectMeta{Name: "mine", ResourceVersion: "2", OwnerReferences: []metav1.OwnerReference{{UID: "other", Controller: ptr.To(true)}}}
	another := metav1.ObjectMeta{Name: "another", ResourceVersion: "3"}
	served, quiet := &v1.SPICE{}, &v1.SPICE{GenerateSecret: ptr.To(false)}
	for name, test := range map[string]struct {
		spice   *v1.SPICE
		secrets []metav1.ObjectMeta
		want    Display
	}{
		"no display":                     {nil, []metav1.ObjectMeta{foreign}, Display{}},
		"no Secret":                      {served, nil, Display{Secret: "try-display-secret", Create: true}},
		"no Secret, and none is wanted":  {quiet, nil, Display{}},
		"the operator's":                 {served, []metav1.ObjectMeta{own}, Display{Secret: "try-display-secret", Version: "1"}},
		"the operator's of before":       {quiet, []metav1.ObjectMeta{own}, Display{Secret: "try-display-secret", Version: "1"}},
		"the user's":                     {quiet, []metav1.ObjectMeta{foreign}, Display{Secret: "mine", Version: "2"}},
		"the user's precedes":            {served, []metav1.ObjectMeta{own, foreign}, Display{Secret: "mine", Version: "2"}},
		"two of the user's":              {served, []metav1.ObjectMeta{foreign, another}, Display{Locked: true}},
		"two of the user's and another":  {quiet, []metav1.ObjectMeta{foreign, own, another}, Display{Locked: true}},
		"no protection, and two Secrets": {quiet, []metav1.ObjectMeta{another, foreign}, Display{Locked: true}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try", UID: "uid"}}
			vm.Spec.VM.Display = &v1.Display{SPICE: test.spice}
			s := Plan(Observed{VM: vm, Displays: test.secrets})
			if s.Display != test.want {
				t.Errorf("it is %+v, want %+v", s.Display, test.want)
			}
			if (s.Err != nil) != test.want.Locked || s.Err != nil && !strings.Contains(s.Err.Error(), "another, mine") {
				t.Errorf("the error is %v", s.Err)
			}
			if spice := s.Machine.Display.SPICE; spice != nil && spice.Password != test.want.hasPassword() {
				t.Errorf("the machine has the display %+v", spice)
			}
			template, err := s.Template()
			if err != nil || template.Annotations[AnnotationDisplay] != test.want.Version || (secretOf(template.Spec) != test.want.Secret) {
				t.Errorf("the pod has %v and the Secret %q, %v", template.Annotations, secretOf(template.Spec), err)
			}
		})
	}
}

// secretOf returns the name of the Secret that a pod mounts for the display.
func secretOf(spec corev1.PodSpec) string {
	for _, v := range spec.Volumes {
		if v.Name == volumeDisplay {
			return v.Secret.SecretName
		}
	}
	return ""
}

// TestNewPasswordChangesThePodAlone: the StatefulSet of a machine that is started does not change.
func TestNewPasswordChangesThePodAlone(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try", UID: "uid"}}
	vm.Spec.VM.State, vm.Spec.VM.Display = v1.StateRunning, &v1.Display{SPICE: &v1.SPICE{}}
	first := []metav1.ObjectMeta{{Name: "mine", ResourceVersion: "1"}}
	second := []metav1.ObjectMeta{{Name: "mine", ResourceVersion: "2"}}
	set, err := Plan(Observed{VM: vm, Displays: first}).StatefulSet()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: set.Spec.Template.Annotations}, Spec: set.Spec.Template.Spec}
	later := Plan(Observed{VM: vm, Displays: second, StatefulSet: set, Pod: pod})
	template, err := later.Template()
	if err != nil || template.Annotations[AnnotationDisplay] != "1" || later.RefreshDisplay() != "2" {
		t.Errorf("the template has %v, and the pod gets %q, %v", template.Annotations, later.RefreshDisplay(), err)
	}
	if fields := later.RestartFor(); len(fields) > 0 {
		t.Errorf("a new password needs a restart for %v", fields)
	}
	stopped := set.DeepCopy()
	stopped.Spec.Replicas = ptr.To[int32](0)
	if template, err := Plan(Observed{VM: vm, Displays: second, StatefulSet: stopped}).Template(); err != nil || template.Annotations[AnnotationDisplay] != "2" {
		t.Errorf("at the next start, the template has %v, %v", template.Annotations, err)
	}
	for name, o := range map[string]Observed{
		"the kubelet knows":                {VM: vm, Displays: first, StatefulSet: set, Pod: pod},
		"no pod":                           {VM: vm, Displays: second, StatefulSet: set},
		"another Secret besides the pod's": {VM: vm, Displays: append(first, metav1.ObjectMeta{Name: "other", ResourceVersion: "9"}), StatefulSet: set, Pod: pod},
	} {
		if version := Plan(o).RefreshDisplay(); version != "" {
			t.Errorf("%s: the pod gets %q", name, version)
		}
	}
	if version := Plan(Observed{VM: vm, StatefulSet: set, Pod: pod}).RefreshDisplay(); version != "deleted" {
		t.Errorf("the Secret is deleted: the pod gets %q", version)
	}
	other := Plan(Observed{VM: vm, Displays: []metav1.ObjectMeta{{Name: "other"}}, StatefulSet: &appsv1.StatefulSet{}, Pod: pod})
	if fields := other.RestartFor(); len(fields) != 1 || fields[0] != "displaySecret" {
		t.Errorf("another Secret needs a restart for %v", fields)
	}
}
