package v1

// Display is the screen of a machine.
type Display struct {
	// Outputs is how many monitors the guest can use, 1 to 16. Default 1. Takes effect at the next start.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Outputs int32 `json:"outputs,omitempty"`

	// LoggedInUser is accepted and ignored: the operator logs no user in.
	//
	// +kubebuilder:validation:MaxLength=253
	LoggedInUser string `json:"loggedInUser,omitempty"`

	// SPICE serves the display by the SPICE protocol. A display without it is not served.
	SPICE *SPICE `json:"spice,omitempty"`
}

// StreamingVideo is which parts of the screen are sent as video.
//
// +kubebuilder:validation:Enum=off;all;filter
type StreamingVideo string

// SPICE serves a display by the SPICE protocol.
type SPICE struct {
	// Port is where the display is served, 1024 to 65535. Default 5900. Takes effect at the next start.
	//
	// +kubebuilder:default=5900
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// Server is the host name or IP address that connection files have. Default: the address of the pod. Takes effect
	// live.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || isIP(self) || self.matches('^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$')",message="must be a host name or an IP address without a port, for example 192.0.2.7"
	Server string `json:"server,omitempty"`

	// GenerateSecret makes the operator create a Secret with a password if there is none. Default true. Takes effect at the
	// next start.
	//
	// +kubebuilder:default=true
	GenerateSecret *bool `json:"generateSecret,omitempty"`

	// ProxyURL is the proxy that connection files have. Default: none. Takes effect live.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self == "" || isURL(self) && self.matches(r'^https?://[^/?#\p{Z}\p{Cc}]+/?$')`,message="must be an http or https URL of a proxy, for example http://proxy.example.org:3128"
	ProxyURL string `json:"proxyUrl,omitempty"`

	// StreamingVideo is which parts of the screen are sent as video: off, all, or filter, which finds moving pictures.
	// Default: the default of QEMU, which is off. Takes effect at the next start.
	StreamingVideo StreamingVideo `json:"streamingVideo,omitempty"`

	// USBRedirects is how many USB devices of a viewer the guest can use at a time, 0 to 16. Default 2. Takes effect at
	// the next start.
	//
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	USBRedirects *int32 `json:"usbRedirects,omitempty"`
}
