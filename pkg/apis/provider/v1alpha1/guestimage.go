package v1alpha1

// GuestImage is a kernel, an initrd and, optionally, a root file system that applies Ignition from fw_cfg.
type GuestImage struct {
	// Name identifies the image in host caches, at most 63 lower-case letters, digits, '-' and '.'. A new name
	// replaces all nodes.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be lower-case letters, digits, '-' and '.' with a letter or digit at both ends, because it names a directory, for example flatcar-4459.2.1"
	Name string `json:"name"`

	// Kernel is the Linux kernel.
	Kernel ImageFile `json:"kernel"`

	// Initrd is the initial RAM disk; it may contain the whole system.
	Initrd ImageFile `json:"initrd"`

	// RootFS, if set, is attached as a read-only disk.
	RootFS *ImageFile `json:"rootFS,omitempty"`

	// KernelArguments are appended to the kernel's command line: at most 64, without control characters, with at most 1536
	// characters together. Linux cuts the command line off after 2047 characters, and the operator adds its own arguments.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.all(a, a.matches(r'^\P{Cc}+$'))`,message="must be arguments without line breaks and other control characters, none of them empty"
	// +kubebuilder:validation:XValidation:rule="self.map(a, size(a) + 1).sum() <= 1536",message="must not be longer than 1536 characters together, because Linux reads 2047 of a command line and ignores the rest silently"
	KernelArguments []string `json:"kernelArguments,omitempty"`

	// IgnitionKey is the fw_cfg name under which this image looks for its configuration; it begins with "opt/" and has at
	// most 55 characters (QEMU, docs/specs/fw_cfg).
	//
	// +kubebuilder:validation:MaxLength=55
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^opt/[A-Za-z0-9._/-]+$')",message="must begin with opt/, followed by letters, digits, '.', '_', '-' and '/', for example opt/com.coreos/config"
	IgnitionKey string `json:"ignitionKey,omitempty"`
}

// ImageFile is one file of a guest image.
//
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('http://') || has(self.sha256) && size(self.sha256) > 0 || has(self.signatureURL) && size(self.signatureURL) > 0",message="an http URL needs a sha256 or a signatureURL, because the file could be replaced on its way; use https, or add one"
type ImageFile struct {
	// URL is an http, https or file URL.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`isURL(self) && self.matches(r'^(https?://[^/?#\p{Z}\p{Cc}]+/[^?#\p{Z}\p{Cc}][^\p{Z}\p{Cc}]*|file://(/[^/?#\p{Z}\p{Cc}]+)+([?#][^\p{Z}\p{Cc}]*)?)$') && url(self).getHost() != (self.startsWith('file:') ? 'x' : '') && !(self.startsWith('file:') && self.matches('/[.][.]?([/?#]|$)|%(2[eEfF]|00)'))`,message="must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz"
	URL string `json:"url"`

	// SHA256 is the expected checksum, 64 lower-case hexadecimal digits. A file with another checksum is refused.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^[0-9a-f]{64}$')",message="must be 64 lower-case hexadecimal digits, as sha256sum prints them"
	SHA256 string `json:"sha256,omitempty"`

	// SignatureURL is the URL of a detached OpenPGP signature; the keys are those of the operator's settings.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self == "" || isURL(self) && self.matches(r'^(https?://[^/?#\p{Z}\p{Cc}]+/[^?#\p{Z}\p{Cc}][^\p{Z}\p{Cc}]*|file://(/[^/?#\p{Z}\p{Cc}]+)+([?#][^\p{Z}\p{Cc}]*)?)$') && url(self).getHost() != (self.startsWith('file:') ? 'x' : '') && !(self.startsWith('file:') && self.matches('/[.][.]?([/?#]|$)|%(2[eEfF]|00)'))`,message="must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz.sig"
	SignatureURL string `json:"signatureURL,omitempty"`
}
