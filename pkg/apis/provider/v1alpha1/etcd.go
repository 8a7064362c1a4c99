package v1alpha1

// EtcdData is what is done for the data of the cluster's etcd beyond keeping its members.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || has(self.snapshots)",fieldPath=".restore",message="needs spec.etcd.snapshots.volume, where the snapshot is"
type EtcdData struct {
	// Snapshots are taken on a schedule and kept in a volume. Left out: none are taken.
	Snapshots *EtcdSnapshots `json:"snapshots,omitempty"`

	// Restore brings the whole cluster back to a snapshot, once. Everything that was written after the snapshot is lost.
	Restore *EtcdRestore `json:"restore,omitempty"`
}

// EtcdSnapshots says when snapshots of etcd are taken and where they are kept.
type EtcdSnapshots struct {
	// Schedule is when they are taken, as in a CronJob, in UTC: minute, hour, day of the month, month, day of the week. Empty: none
	// are taken, and the volume is for a restore only.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^@ ]+( [^ ]+){4})$')",message="must be five fields like \"0 */6 * * *\", or @hourly, @daily, @weekly, @monthly"
	Schedule string `json:"schedule,omitempty"`

	// Keep is how many snapshots of the cluster stay in the volume; older ones are deleted when a new one is there.
	//
	// +kubebuilder:default=14
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Keep int32 `json:"keep,omitempty"`

	// Volume is where they are kept.
	Volume SnapshotVolume `json:"volume"`
}

// SnapshotVolume is a volume with snapshots, which may be those of several clusters. It has to lead to the same files from every host
// that masters may run on.
//
// +kubebuilder:validation:XValidation:rule="(has(self.claimName) ? 1 : 0) + (has(self.hostPath) ? 1 : 0) + (has(self.nfs) ? 1 : 0) == 1",message="must have exactly one of claimName, hostPath and nfs"
type SnapshotVolume struct {
	// ClaimName is a PersistentVolumeClaim in the cluster's namespace, which is deleted with the cluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName,omitempty"`

	// HostPath is a directory where hosts have shared storage.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains('..')",message="must be an absolute path without \"..\""
	HostPath string `json:"hostPath,omitempty"`

	// NFS is a directory of an NFS server.
	NFS *NFSDirectory `json:"nfs,omitempty"`
}

// NFSDirectory is a directory that a server exports by NFS.
type NFSDirectory struct {
	// Server is the host name or address of the server.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server"`

	// Path is what the server exports.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="must be an absolute path"
	Path string `json:"path"`
}

// EtcdRestore names the snapshot that a cluster is brought back to.
type EtcdRestore struct {
	// Snapshot is the name of a file in spec.etcd.snapshots.volume, for example ab1cd-20261122T060000Z.db.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="must be the name of a file, without a directory"
	Snapshot string `json:"snapshot"`

	// Generation is raised to restore the same snapshot once more.
	//
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`
}
