package qemu

// Accelerator is what runs the guest's code.
type Accelerator string

const (
	// KVM runs it on the host's processor (https://www.kernel.org/doc/html/latest/virt/kvm/api.html).
	KVM Accelerator = "kvm"
	// TCG translates it in software, many times slower, and needs nothing from the host.
	TCG Accelerator = "tcg"
)

// Mode says how to choose an Accelerator: auto (also if empty), kvm or tcg, in upper or lower case. The names are those
// of KVMConfig's spec.kvm.k8sKVM.acceleration.
type Mode string

const (
	// ModeAuto uses KVM if it is proven to work, and otherwise TCG.
	ModeAuto Mode = "auto"
	// ModeKVM always uses KVM.
	ModeKVM Mode = "kvm"
	// ModeTCG uses TCG.
	ModeTCG Mode = "tcg"
)

// Choice is an accelerator and why it was chosen.
type Choice struct {
	Accelerator Accelerator `json:"accelerator"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
}
