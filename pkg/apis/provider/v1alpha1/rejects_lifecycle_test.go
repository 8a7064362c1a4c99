package v1alpha1_test

// What is wrong with versions, images and the life of nodes.
var rejectedLifecycle = map[string]rejection{
	"a Kubernetes version with a leading v": {
		change: "spec: {versions: {kubernetes: v1.35.4}}",
		want:   `spec.versions.kubernetes: Invalid value: "v1.35.4": must be a version of three numbers without a leading "v", for example 1.35.4`,
	},
	"an etcd version of two numbers": {
		change: `spec: {versions: {etcd: "3.6"}}`,
		want:   `spec.versions.etcd: Invalid value: "3.6": must be a version of three numbers without a leading "v", for example 3.6.5`,
	},
	"a Flatcar channel instead of a version": {
		change: "spec: {versions: {containerLinux: stable}}",
		want:   `spec.versions.containerLinux: Invalid value: "stable": must be a version of three numbers without a leading "v", for example 4459.2.1`,
	},
	"no worker may be unavailable": {
		change: "spec: {rollout: {maxUnavailable: 0}}",
		want:   "spec.rollout.maxUnavailable: Invalid value: 0: spec.rollout.maxUnavailable in body should be greater than or equal to 1",
	},
	"a node port without a Service that has one": {
		change: "spec: {access: {type: Ingress, nodePort: 30443}}",
		want:   `spec.access.nodePort: Invalid value: needs type NodePort or LoadBalancer; remove it, or change the type`,
	},
	"node ports without a host": {
		change: "spec: {access: {type: NodePort}}",
		want:   `spec.access.host: Invalid value: must name a host of the management cluster, or what leads to them, when the type is NodePort`,
	},
	"a host with scheme and port": {
		change: `spec: {access: {host: "https://api.example.org:6443"}}`,
		want:   `spec.access.host: Invalid value: "https://api.example.org:6443": must be an IP address or a lower case host name, without scheme and port`,
	},
	"a way in that does not exist": {
		change: "spec: {access: {type: Gateway}}",
		want:   `spec.access.type: Unsupported value: "Gateway": supported values: "ClusterIP", "NodePort", "LoadBalancer", "Ingress"`,
	},
	"a pod network that does not exist": {
		change: "spec: {addons: {cni: {type: calico}}}",
		want:   `spec.addons.cni.type: Unsupported value: "calico": supported values: "flannel", "custom", "none"`,
	},
	"a pod network of one's own without manifests": {
		change: "spec: {addons: {cni: {type: custom}}}",
		want:   `spec.addons.cni.manifests: Invalid value: goes with type custom, which needs it: name both, or neither`,
	},
	"manifests for flannel": {
		change: `spec: {addons: {cni: {manifests: "kind: Secret"}}}`,
		want:   `spec.addons.cni.manifests: Invalid value: goes with type custom, which needs it: name both, or neither`,
	},
	"a restore from nowhere": {
		change: "spec: {etcd: {restore: {snapshot: ab1cd.db}}}",
		want:   `spec.etcd.restore: Invalid value: needs spec.etcd.snapshots.volume, where the snapshot is`,
	},
	"a restore from another directory": {
		change: "spec: {etcd: {snapshots: {volume: {claimName: a}}, restore: {snapshot: ../ab1cd.db}}}",
		want:   `spec.etcd.restore.snapshot: Invalid value: "../ab1cd.db": must be the name of a file, without a directory`,
	},
	"snapshots with an invalid schedule": {
		change: "spec: {etcd: {snapshots: {schedule: every hour, volume: {claimName: a}}}}",
		want:   `spec.etcd.snapshots.schedule: Invalid value: "every hour": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots in two volumes": {
		change: "spec: {etcd: {snapshots: {volume: {claimName: a, hostPath: /a}}}}",
		want:   `spec.etcd.snapshots.volume: Invalid value: must have exactly one of claimName, hostPath and nfs`,
	},
	"snapshots in any directory": {
		change: "spec: {etcd: {snapshots: {volume: {hostPath: /a/../etc}}}}",
		want:   `spec.etcd.snapshots.volume.hostPath: Invalid value: "/a/../etc": must be an absolute path without ".."`,
	},
	"snapshots in a directory of a server without its path": {
		change: "spec: {etcd: {snapshots: {volume: {nfs: {server: nas, path: etcd}}}}}",
		want:   `spec.etcd.snapshots.volume.nfs.path: Invalid value: "etcd": must be an absolute path`,
	},
	"a drain timeout that is negative": {
		change: "spec: {drain: {timeout: -5m}}",
		want:   `spec.drain.timeout: Invalid value: "-5m": must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number`,
	},
	"a drain timeout that Go cannot decode": {
		change: "spec: {drain: {timeout: 999999h999999h999999h}}",
		want:   `spec.drain.timeout: Invalid value: "999999h999999h999999h": must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number`,
	},
	"more workers unavailable than a number holds": {
		change: "spec: {rollout: {maxUnavailable: 4294967296}}",
		want:   "spec.rollout.maxUnavailable: Invalid value: 4294967296: spec.rollout.maxUnavailable in body should be less than or equal to 2147483647",
	},
	"a drain timeout in days": {
		change: "spec: {drain: {timeout: 1d}}",
		want:   `spec.drain.timeout: Invalid value: "1d": must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number`,
	},
	"a drain timeout that is a number": {
		change: `spec: {drain: {timeout: "300"}}`,
		want:   `spec.drain.timeout: Invalid value: "300": must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number`,
	},
	"a remediation that does not say whether": {
		change: "spec: {remediation: {unhealthyAfter: 5m}}",
		want:   "spec.remediation.enabled: Required value",
	},
	"a remediation after a negative time": {
		change: "spec: {remediation: {enabled: true, unhealthyAfter: -1s}}",
		want:   `spec.remediation.unhealthyAfter: Invalid value: "-1s": must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number`,
	},
	"an image name that is a path": {
		change: `spec: {guestImage: {name: ../own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.name: Invalid value: "../own": must be lower-case letters, digits, '-' and '.' with a letter or digit at both ends, because it names a directory, for example flatcar-4459.2.1`,
	},
	"an image without initrd": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}}}`,
		want:   "spec.guestImage.initrd: Required value",
	},
	"an image from an FTP server": {
		change: `spec: {guestImage: {name: own, kernel: {url: "ftp://example.org/k"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "ftp://example.org/k": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image file without a path": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "https://example.org": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image that could be replaced on its way": {
		change: `spec: {guestImage: {name: own, kernel: {url: "http://example.org/k"}, initrd: {url: "https://example.org/i"}}}`,
		want:   "spec.guestImage.kernel: Invalid value: an http URL needs a sha256 or a signatureURL, because the file could be replaced on its way; use https, or add one",
	},
	"an initrd that could be replaced on its way": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "http://example.org/i"}}}`,
		want:   "spec.guestImage.initrd: Invalid value: an http URL needs a sha256 or a signatureURL, because the file could be replaced on its way; use https, or add one",
	},
	"a root file system that could be replaced on its way": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, rootFS: {url: "http://example.org/r"}}}`,
		want:   "spec.guestImage.rootFS: Invalid value: an http URL needs a sha256 or a signatureURL, because the file could be replaced on its way; use https, or add one",
	},
	"a checksum that is too short": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k", sha256: abc}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.sha256: Invalid value: "abc": must be 64 lower-case hexadecimal digits, as sha256sum prints them`,
	},
	"a checksum in capitals": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k", sha256: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.sha256: Invalid value: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": must be 64 lower-case hexadecimal digits, as sha256sum prints them`,
	},
	"a signature that is no URL": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k", signatureURL: k.sig}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.signatureURL: Invalid value: "k.sig": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz.sig`,
	},
	"a root file system that is no URL": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, rootFS: {url: /images/root.squashfs}}}`,
		want:   `spec.guestImage.rootFS.url: Invalid value: "/images/root.squashfs": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"a kernel argument with a line break": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, kernelArguments: ["quiet\nsplash"]}}`,
		want:   "spec.guestImage.kernelArguments: Invalid value: must be arguments without line breaks and other control characters, none of them empty",
	},
	"an empty kernel argument": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, kernelArguments: [""]}}`,
		want:   "spec.guestImage.kernelArguments: Invalid value: must be arguments without line breaks and other control characters, none of them empty",
	},
	"an fw_cfg name outside opt/": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, ignitionKey: etc/config}}`,
		want:   `spec.guestImage.ignitionKey: Invalid value: "etc/config": must begin with opt/, followed by letters, digits, '.', '_', '-' and '/', for example opt/com.coreos/config`,
	},
	"an fw_cfg name of 56 characters": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, ignitionKey: opt/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}}`,
		want:   "spec.guestImage.ignitionKey: Too long: may not be more than 55 bytes",
	},
}
