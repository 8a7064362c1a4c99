package virtualmachine

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// DisplaySecretComponent is the value of LabelComponent for Secrets with the password of a display. The Secret of a
// machine is found by this label, LabelName and LabelInstance, whatever its name.
const DisplaySecretComponent = "display-secret"

// DisplaySecretName returns the name of the Secret that the operator creates if there is none.
func DisplaySecretName(name string) string { return name + "-display-secret" }

// Display is how the display of a virtual machine is protected.
type Display struct {
	// Secret is the name of the Secret with the password, and Version its resource version; empty if it does not exist
	// yet. Without a name, the display has no password, or it is locked.
	Secret, Version string
	// Create says that the operator creates the Secret.
	Create bool
	// Locked says that it is not known which Secret has the password.
	Locked bool
}

// hasPassword returns whether a viewer needs a password.
func (d Display) hasPassword() bool { return d.Secret != "" || d.Locked }

// displayOf decides which Secret has the password. A Secret of the user precedes the one that the operator has created.
// With two of the user's, the display is locked, because the operator does not guess who may see a machine.
func displayOf(o Observed) (Display, error) {
	spice := o.VM.Spec.VM.Display
	if spice == nil || spice.SPICE == nil {
		return Display{}, nil
	}
	var own *metav1.ObjectMeta
	var foreign []metav1.ObjectMeta
	for _, secret := range o.Displays {
		if metav1.IsControlledBy(&secret, o.VM) {
			own = &secret
		} else {
			foreign = append(foreign, secret)
		}
	}
	switch {
	case len(foreign) > 1:
		var names []string
		for _, secret := range foreign {
			names = append(names, secret.Name)
		}
		slices.Sort(names)
		return Display{Locked: true}, problem.Newf("DisplaySecretAmbiguous",
			"the Secrets %s all have the labels of the password of the display: delete all but one, or remove their label %s. A machine that runs keeps the one that it was started with, and the display of one that starts is locked", strings.Join(names, ", "), LabelComponent)
	case len(foreign) == 1:
		return Display{Secret: foreign[0].Name, Version: foreign[0].ResourceVersion}, nil
	case own != nil:
		return Display{Secret: own.Name, Version: own.ResourceVersion}, nil
	case ptr.Deref(spice.SPICE.GenerateSecret, true):
		return Display{Secret: DisplaySecretName(o.VM.Name), Create: true}, nil
	}
	return Display{}, nil
}

// DisplaySecret returns the Secret that the operator creates, with a password that does not expire.
func (s *State) DisplaySecret(password string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: s.ObjectMeta(DisplaySecretName(s.VM.Name)), Type: corev1.SecretTypeOpaque}
	secret.Labels[LabelComponent] = DisplaySecretComponent
	secret.Data = map[string][]byte{vmconfig.DisplayPassword: []byte(password)}
	return secret
}

// displayVersion returns the version of the Secret for the pod template. That of a machine that is started does not
// change, so that a new password is no change of the StatefulSet.
func (s *State) displayVersion() string {
	if set := s.Observed.StatefulSet; set != nil && s.replicas() > 0 {
		return set.Spec.Template.Annotations[AnnotationDisplay]
	}
	return s.Display.Version
}

// deletedDisplay stands for the version of a Secret that does not exist.
const deletedDisplay = "deleted"

// RefreshDisplay returns the version of the pod's Secret that has to be written to the pod, so that it replaces the
// files of the running pod at once, instead of within two minutes. It is empty if there is nothing to tell. The pod may
// have another Secret than the one for the next start.
func (s *State) RefreshDisplay() string {
	if s.Pod == nil || s.Pod.DeletionTimestamp != nil {
		return ""
	}
	at := slices.IndexFunc(s.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Name == volumeDisplay })
	if at < 0 {
		return ""
	}
	version := deletedDisplay
	for _, secret := range s.Displays {
		if secret.Name == s.Pod.Spec.Volumes[at].Secret.SecretName {
			version = secret.ResourceVersion
		}
	}
	if s.Pod.Annotations[AnnotationDisplay] == version {
		return ""
	}
	return version
}

// DisplayReported returns what the runner reports of the display: how often the password was set, -1 without one, and
// the address of the viewer that is connected; false if nothing is known.
func (s *State) DisplayReported() (serial int, client string, known bool) {
	if s.Link.Report == nil || s.Link.Report.Display == nil || !s.Serves() {
		return 0, "", false
	}
	d := s.Link.Report.Display
	if address, err := netip.ParseAddr(d.Client); err == nil {
		client = address.Unmap().String()
	}
	const most = 1 << 30 // more often than any password is set
	return min(max(d.Serial, -1), most), client, true
}
