package v1alpha1

// Machine is the virtual machine of one node.
type Machine struct {
	// ID is the id of the node in spec.cluster that this machine belongs to. Give it for every machine of a list or for
	// none; without ids, machines belong to nodes by position, as in the original API.
	//
	// +kubebuilder:validation:MaxLength=39
	ID string `json:"id,omitempty"`

	// CPUs is the number of virtual CPUs, 1 to 255; the node pod requests them in full.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	CPUs int32 `json:"cpus"`

	// Memory is the guest's memory as a Kubernetes quantity with one of the suffixes M, G, T (powers of 1000), Mi, Gi and
	// Ti (powers of 1024), for example 4G or 4Gi; 512M to 16Ti. The pod requests more, by an overhead for QEMU.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,12}([.][0-9]{1,9})?[MGT]i?$')",message="must be a number followed by M, G, T, Mi, Gi or Ti, for example 4G; a bare number meant bytes to Kubernetes and MiB to QEMU"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,12}([.][0-9]{1,9})?[MGT]i?$') || quantity(self).compareTo(quantity('512M')) >= 0 && quantity(self).compareTo(quantity('16Ti')) <= 0",message="must be 512M to 16Ti, for example 4G"
	Memory string `json:"memory"`

	// Disk is the size of the container and kubelet disks of a worker in GB, rounded to whole GB, at most 16383. It is
	// used if dockerVolumeSizeGB is 0. If both are 0, the disks have 50 and 5 GB.
	//
	// +kubebuilder:validation:Type=number
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16383
	Disk float64 `json:"disk,omitempty"`

	// DockerVolumeSizeGB is the size of the container and kubelet disks of a worker in GB, at most 16383. With 0,
	// disk is used.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16383
	DockerVolumeSizeGB int32 `json:"dockerVolumeSizeGB,omitempty"`

	// HostVolumes are directories of the host, shared into the guest under /data/<mountTag>. On masters they are accepted
	// and ignored. Tags and paths are unique in a machine; 16 volumes at most.
	//
	// +nullable
	// +listType=map
	// +listMapKey=mountTag
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.hostPath == v.hostPath))",message="must not use a hostPath twice in a machine; give every volume its own path"
	HostVolumes []HostVolume `json:"hostVolumes,omitempty"`
}

// HostVolume is a local persistent volume of the host, shared into the guest.
type HostVolume struct {
	// MountTag names the share; the persistent volume is the one labeled mount-tag=<mountTag>. A lower-case DNS label of
	// at most 31 characters because it becomes part of a claim's name; "etcdshare" is reserved.
	//
	// +kubebuilder:validation:MaxLength=31
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example data1"
	// +kubebuilder:validation:XValidation:rule="self != 'etcdshare'",message="must not be etcdshare, which is the share of etcd; choose another tag"
	MountTag string `json:"mountTag"`

	// HostPath is where the volume is mounted inside the runner's container: an absolute path of at most 100 characters
	// without '..', ':' and ','. Directories that the runner itself needs are refused: /opt as a whole, and /bin,
	// /cloudconfig, /cloudconfig-private, /dev, /etc, /lib, /lib64, /opt/kvm-operator, /proc, /run, /sbin, /sys, /usr and
	// /var/lib/kvm-operator with everything below them.
	//
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:,[:cntrl:]]+)+/?$') && !self.matches('/[.][.]?(/|$)')",message="must be an absolute path below / without '.', '..', ':' and ',', for example /data1"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/(s?bin|cloudconfig(-private)?|dev|etc|lib(64)?|(opt|var/lib)/kvm-operator|proc|run|sys|usr)(/|$)|^/opt/?$')",message="must not be a directory that the runner needs (/bin, /cloudconfig, /dev, /etc, /lib, /opt, /proc, /run, /sbin, /sys, /usr, /var/lib/kvm-operator); choose another path, for example /data1"
	HostPath string `json:"hostPath"`
}
