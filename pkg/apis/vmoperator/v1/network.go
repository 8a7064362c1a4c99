package v1

// Device is the network card that the guest sees.
//
// +kubebuilder:validation:Enum=virtio-net;virtio-net-pci;e1000e;e1000;rtl8139
type Device string

// Network is one network card and what it is connected to.
//
// +kubebuilder:validation:XValidation:rule="(has(self.tap) ? 1 : 0) + (has(self.user) ? 1 : 0) + (has(self.pod) ? 1 : 0) == 1",message="must have exactly one of tap, user and pod; write user: {} for a network behind the pod's"
type Network struct {
	// Tap connects the card to a bridge of the host that a setting of the operator allows. The pod of the machine is in
	// the network of its host, so cards of type user reach nothing.
	Tap *Tap `json:"tap,omitempty"`

	// User connects the card to a network of QEMU's own; connections of the guest leave from the pod's address.
	User *UserNetwork `json:"user,omitempty"`

	// Pod connects the card to the network of the pod: the guest has the pod's address, and gets it by DHCP. It is the
	// machine's only card.
	Pod *PodNetwork `json:"pod,omitempty"`
}

// PodNetwork is a network card that has the address of the pod.
type PodNetwork struct {
	// Device is the card: virtio-net, virtio-net-pci, e1000e, e1000 or rtl8139. Default virtio-net. Takes effect at the
	// next start.
	//
	// +kubebuilder:default=virtio-net
	Device Device `json:"device,omitempty"`
}

// Tap is a network card in a bridge of the host.
type Tap struct {
	// Device is the card: virtio-net, virtio-net-pci, e1000e, e1000 or rtl8139. Default virtio-net. Takes effect at the
	// next start.
	//
	// +kubebuilder:default=virtio-net
	Device Device `json:"device,omitempty"`

	// Bridge is the bridge of the host, at most 15 characters. Default br0. Takes effect at the next start.
	//
	// +kubebuilder:default=br0
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]{1,15}$') && self != '.' && self != '..'",message="must be the name of a bridge, letters, digits, '.', '_' and '-', at most 15 characters, for example br0"
	Bridge string `json:"bridge,omitempty"`

	// MAC is the card's address. Default: one that is computed from the machine. Takes effect at the next start.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$') && self != '00:00:00:00:00:00'",message="must be a unicast MAC address of six bytes, of which the first is even, for example 52:54:00:12:34:56; leave it out to get one"
	MAC *string `json:"mac,omitempty"`
}

// UserNetwork is a network card in a network of QEMU's own.
type UserNetwork struct {
	// Device is the card: virtio-net, virtio-net-pci, e1000e, e1000 or rtl8139. Default virtio-net. Takes effect at the
	// next start.
	//
	// +kubebuilder:default=virtio-net
	Device Device `json:"device,omitempty"`

	// Net is the network that the guest is in, IPv4 with a prefix length of 8 to 27. Default: 10.0.2.0/24. Takes effect
	// at the next start.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9.]+/[0-9]+$') && isCIDR(self) && cidr(self).prefixLength() >= 8 && cidr(self).prefixLength() <= 27",message="must be an IPv4 network with a prefix length of 8 to 27, for example 10.9.0.0/24"
	Net *string `json:"net,omitempty"`
}
