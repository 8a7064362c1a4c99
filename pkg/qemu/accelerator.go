package qemu

// Accelerator is what runs the guest's code.
type Accelerator string

const (
	// KVM runs it on the host's processor (https://www.kernel.org/doc/html/latest/virt/kvm/api.html).
	KVM Accelerator = "kvm"
	// TCG translates it in software, many times slower, and needs nothing of the host.
	TCG Accelerator = "tcg"
)

// Mode says how to choose an Accelerator: auto (also when empty), kvm or tcg, in upper or lower case. The names are those
// of KVMConfig's spec.kvm.k8sKVM.acceleration.
type Mode string

const (
	// ModeAuto takes KVM if it is proved to work, and else TCG.
	ModeAuto Mode = "auto"
	// ModeKVM takes KVM and nothing else.
	ModeKVM Mode = "kvm"
	// ModeTCG takes TCG.
	ModeTCG Mode = "tcg"
)

// Choice is an accelerator and why it is this one.
type Choice struct {
	Accelerator Accelerator `json:"accelerator"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
}
