package v1alpha1

// EtcdData are the snapshots of the cluster's etcd, and the snapshot that is restored.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || has(self.snapshots)",fieldPath=".restore",message="needs spec.etcd.snapshots.volume, where the snapshot is"
type EtcdData struct {
	// Snapshots are taken on a schedule and stored in a volume. Default: no snapshots.
	Snapshots *EtcdSnapshots `json:"snapshots,omitempty"`

	// Restore restores a snapshot, once. Everything that was written after the snapshot is lost.
	Restore *EtcdRestore `json:"restore,omitempty"`
}

// EtcdSnapshots says when snapshots of etcd are taken and where they are stored.
type EtcdSnapshots struct {
	// Schedule is when snapshots are taken, as in a CronJob, in UTC: minute, hour, day of the month, month, day of the week.
	// If it is empty, no snapshots are taken, and the volume is only for a restore.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$') || self.matches('(?i)^(([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]{0,3})?(,([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]{0,3})?)* ([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]{0,3})?(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]{0,3})?)* ([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]{0,3})?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]{0,3})?)* ([*?]|(0?[1-9]|1[0-2])(-(0?[1-9]|1[0-2]))?|jan(-(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?|feb(-(feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?|mar(-(mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?|apr(-(apr|may|jun|jul|aug|sep|oct|nov|dec))?|may(-(may|jun|jul|aug|sep|oct|nov|dec))?|jun(-(jun|jul|aug|sep|oct|nov|dec))?|jul(-(jul|aug|sep|oct|nov|dec))?|aug(-(aug|sep|oct|nov|dec))?|sep(-(sep|oct|nov|dec))?|oct(-(oct|nov|dec))?|nov(-(nov|dec))?|dec(-(dec))?)(/[1-9][0-9]{0,3})?(,([*?]|(0?[1-9]|1[0-2])(-(0?[1-9]|1[0-2]))?|jan(-(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?|feb(-(feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?|mar(-(mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?|apr(-(apr|may|jun|jul|aug|sep|oct|nov|dec))?|may(-(may|jun|jul|aug|sep|oct|nov|dec))?|jun(-(jun|jul|aug|sep|oct|nov|dec))?|jul(-(jul|aug|sep|oct|nov|dec))?|aug(-(aug|sep|oct|nov|dec))?|sep(-(sep|oct|nov|dec))?|oct(-(oct|nov|dec))?|nov(-(nov|dec))?|dec(-(dec))?)(/[1-9][0-9]{0,3})?)* ([*?]|[0-6](-[0-6])?|sun(-(sun|mon|tue|wed|thu|fri|sat))?|mon(-(mon|tue|wed|thu|fri|sat))?|tue(-(tue|wed|thu|fri|sat))?|wed(-(wed|thu|fri|sat))?|thu(-(thu|fri|sat))?|fri(-(fri|sat))?|sat(-(sat))?)(/[1-9][0-9]{0,3})?(,([*?]|[0-6](-[0-6])?|sun(-(sun|mon|tue|wed|thu|fri|sat))?|mon(-(mon|tue|wed|thu|fri|sat))?|tue(-(tue|wed|thu|fri|sat))?|wed(-(wed|thu|fri|sat))?|thu(-(thu|fri|sat))?|fri(-(fri|sat))?|sat(-(sat))?)(/[1-9][0-9]{0,3})?)*)$') && self.findAll('[0-9]+-[0-9]+').all(r, int(r.split('-')[0]) <= int(r.split('-')[1]))",message="must be five fields of a CronJob like \"0 */6 * * *\", or @hourly, @daily, @weekly, @monthly"
	Schedule string `json:"schedule,omitempty"`

	// Keep is how many snapshots of the cluster stay in the volume; older ones are deleted after a new one was taken.
	//
	// +kubebuilder:default=14
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Keep int32 `json:"keep,omitempty"`

	// Volume is where snapshots are stored.
	Volume SnapshotVolume `json:"volume"`
}

// SnapshotVolume is a volume with snapshots of one or several clusters. It has to contain the same files on every host that
// masters may run on.
//
// +kubebuilder:validation:XValidation:rule="(has(self.claimName) ? 1 : 0) + (has(self.hostPath) ? 1 : 0) + (has(self.nfs) ? 1 : 0) == 1",message="must have exactly one of claimName, hostPath and nfs"
type SnapshotVolume struct {
	// ClaimName is a PersistentVolumeClaim in the cluster's namespace, which is deleted with the cluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a PersistentVolumeClaim, for example snapshots"
	ClaimName string `json:"claimName,omitempty"`

	// HostPath is a directory of shared storage on all hosts of masters.
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
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.matches('^[A-Za-z0-9_][A-Za-z0-9_-]*([.][A-Za-z0-9_][A-Za-z0-9_-]*)*[.]?$')",message="must be a host name or an IP address, for example nfs.example.org"
	Server string `json:"server"`

	// Path is the path of the export.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="must be an absolute path"
	Path string `json:"path"`
}

// EtcdRestore names the snapshot that is restored.
type EtcdRestore struct {
	// Snapshot is the name of a file in spec.etcd.snapshots.volume, for example ab1cd-20261122T060000Z.db.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="must be the name of a file, without a directory"
	Snapshot string `json:"snapshot"`

	// Generation is raised to restore the same snapshot again.
	//
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`
}
