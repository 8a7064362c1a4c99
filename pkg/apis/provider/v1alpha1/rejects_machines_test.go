package v1alpha1_test

// What is wrong with spec.kvm.
var rejectedMachines = map[string]rejection{
	"a machine too few for the masters": {
		change: "spec: {cluster: {masters: [{id: m1}, {id: m2}, {id: m3}]}, kvm: {masters: [{cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.masters: Invalid value: must have one machine for each node of spec.cluster.masters; add or remove machines",
	},
	"a machine too many for the workers": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.workers: Invalid value: must have one machine for each node of spec.cluster.workers; add or remove machines",
	},
	"workers without machines": {
		change: "spec: {kvm: {workers: <remove>}}",
		want:   "spec.kvm.workers: Invalid value: must have one machine for each node of spec.cluster.workers; add or remove machines",
	},
	"machines without workers": {
		change: "spec: {cluster: {workers: <remove>}}",
		want:   "spec.kvm.workers: Invalid value: must have one machine for each node of spec.cluster.workers; add or remove machines",
	},
	"no list of master machines": {
		change: "spec: {kvm: {masters: <remove>}}",
		want:   "spec.kvm.masters: Required value",
	},
	"an ID for some master machines only": {
		change: "spec: {cluster: {masters: [{id: m1}, {id: m2}, {id: m3}]}, kvm: {masters: [{id: m1, cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.masters: Invalid value: must give an id to every machine or to none; add the missing ids, or remove all to match by position",
	},
	"an ID for some worker machines only": {
		change: "spec: {cluster: {workers: [{id: w1}, {id: w2}]}, kvm: {workers: [{id: w1, cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.workers: Invalid value: must give an id to every machine or to none; add the missing ids, or remove all to match by position",
	},
	"a master machine with the ID of no master": {
		change: "spec: {kvm: {masters: [{id: m2, cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.masters: Invalid value: must have exactly the ids of spec.cluster.masters; correct the ids, or remove all to match by position",
	},
	"a worker machine with the ID of no worker": {
		change: "spec: {kvm: {workers: [{id: W1, cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.workers: Invalid value: must have exactly the ids of spec.cluster.workers; correct the ids, or remove all to match by position",
	},
	"two worker machines with one ID": {
		change: "spec: {cluster: {workers: [{id: w1}, {id: w2}]}, kvm: {workers: [{id: w1, cpus: 2, memory: 4G}, {id: w1, cpus: 2, memory: 4G}]}}",
		want:   "spec.kvm.workers: Invalid value: must have exactly the ids of spec.cluster.workers; correct the ids, or remove all to match by position",
	},
	"no CPU": {
		change: "spec: {kvm: {masters: [{cpus: 0, memory: 4G}]}}",
		want:   "spec.kvm.masters[0].cpus: Invalid value: 0: spec.kvm.masters[0].cpus in body should be greater than or equal to 1",
	},
	"more CPUs than QEMU takes": {
		change: "spec: {kvm: {masters: [{cpus: 256, memory: 4G}]}}",
		want:   "spec.kvm.masters[0].cpus: Invalid value: 256: spec.kvm.masters[0].cpus in body should be less than or equal to 255",
	},
	"no word on CPUs": {
		change: "spec: {kvm: {masters: [{memory: 4G}]}}",
		want:   "spec.kvm.masters[0].cpus: Required value",
	},
	"no word on memory": {
		change: "spec: {kvm: {masters: [{cpus: 2}]}}",
		want:   "spec.kvm.masters[0].memory: Required value",
	},
	"memory as a bare number": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: "2048"}]}}`,
		want:   `spec.kvm.workers[0].memory: Invalid value: "2048": must be a number followed by M, G, T, Mi, Gi or Ti, for example 4G; a bare number meant bytes to Kubernetes and MiB to QEMU`,
	},
	"memory in kilobytes": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4194304Ki}]}}",
		want:   `spec.kvm.workers[0].memory: Invalid value: "4194304Ki": must be a number followed by M, G, T, Mi, Gi or Ti, for example 4G; a bare number meant bytes to Kubernetes and MiB to QEMU`,
	},
	"memory with a unit of QEMU's own": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4GB}]}}",
		want:   `spec.kvm.workers[0].memory: Invalid value: "4GB": must be a number followed by M, G, T, Mi, Gi or Ti, for example 4G; a bare number meant bytes to Kubernetes and MiB to QEMU`,
	},
	"memory with a comma": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: "4,5G"}]}}`,
		want:   `spec.kvm.workers[0].memory: Invalid value: "4,5G": must be a number followed by M, G, T, Mi, Gi or Ti, for example 4G; a bare number meant bytes to Kubernetes and MiB to QEMU`,
	},
	"memory in lower case": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4g}]}}",
		want:   `spec.kvm.workers[0].memory: Invalid value: "4g": must be a number followed by M, G, T, Mi, Gi or Ti, for example 4G; a bare number meant bytes to Kubernetes and MiB to QEMU`,
	},
	"too little memory": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 511M}]}}",
		want:   `spec.kvm.workers[0].memory: Invalid value: "511M": must be 512M to 16Ti, for example 4G`,
	},
	"too much memory": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 17Ti}]}}",
		want:   `spec.kvm.workers[0].memory: Invalid value: "17Ti": must be 512M to 16Ti, for example 4G`,
	},
	"a negative disk": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, disk: -1}]}}",
		want:   "spec.kvm.workers[0].disk: Invalid value: -1: spec.kvm.workers[0].disk in body should be greater than or equal to 0",
	},
	"a disk beyond all bounds": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, disk: 16384}]}}",
		want:   "spec.kvm.workers[0].disk: Invalid value: 16384: spec.kvm.workers[0].disk in body should be less than or equal to 16383",
	},
	"a negative docker volume": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, dockerVolumeSizeGB: -1}]}}",
		want:   "spec.kvm.workers[0].dockerVolumeSizeGB: Invalid value: -1: spec.kvm.workers[0].dockerVolumeSizeGB in body should be greater than or equal to 0",
	},
	"a docker volume beyond all bounds": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, dockerVolumeSizeGB: 16384}]}}",
		want:   "spec.kvm.workers[0].dockerVolumeSizeGB: Invalid value: 16384: spec.kvm.workers[0].dockerVolumeSizeGB in body should be less than or equal to 16383",
	},
	"a mount tag of no character": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: "", hostPath: /data1}]}]}}`,
		want:   `spec.kvm.workers[0].hostVolumes[0].mountTag: Invalid value: "": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example data1`,
	},
	"a mount tag of 32 characters": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, hostPath: /data1}]}]}}",
		want:   "spec.kvm.workers[0].hostVolumes[0].mountTag: Too long: may not be more than 31 bytes",
	},
	"a mount tag with a slash": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: a/b, hostPath: /data1}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].mountTag: Invalid value: "a/b": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example data1`,
	},
	"the mount tag of etcd": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: etcdshare, hostPath: /data1}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].mountTag: Invalid value: "etcdshare": must not be etcdshare, which is the share of etcd; choose another tag`,
	},
	"one mount tag twice": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /data1}, {mountTag: data1, hostPath: /data2}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[1]: Duplicate value: {"mountTag":"data1"}`,
	},
	"one host path twice": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /data}, {mountTag: data2, hostPath: /data}]}]}}",
		want:   "spec.kvm.workers[0].hostVolumes: Invalid value: must not use a hostPath twice in a machine; give every volume its own path",
	},
	"a relative host path": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: data1}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "data1": must be an absolute path below / without '.', '..', ':' and ',', for example /data1`,
	},
	"a host path that climbs": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /data/../etc}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/data/../etc": must be an absolute path below / without '.', '..', ':' and ',', for example /data1`,
	},
	"a host path with a colon": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: "/data:1"}]}]}}`,
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/data:1": must be an absolute path below / without '.', '..', ':' and ',', for example /data1`,
	},
	"the root directory as host path": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/": must be an absolute path below / without '.', '..', ':' and ',', for example /data1`,
	},
	"a host path over the runner's own directory": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /var/lib/kvm-operator/disks}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/var/lib/kvm-operator/disks": must not be a directory that the runner needs (/bin, /cloudconfig, /dev, /etc, /lib, /opt, /proc, /run, /sbin, /sys, /usr, /var/lib/kvm-operator); choose another path, for example /data1`,
	},
	"a host path over the devices": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /dev}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/dev": must not be a directory that the runner needs (/bin, /cloudconfig, /dev, /etc, /lib, /opt, /proc, /run, /sbin, /sys, /usr, /var/lib/kvm-operator); choose another path, for example /data1`,
	},
	"a host path over the boot data": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /cloudconfig-private}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/cloudconfig-private": must not be a directory that the runner needs (/bin, /cloudconfig, /dev, /etc, /lib, /opt, /proc, /run, /sbin, /sys, /usr, /var/lib/kvm-operator); choose another path, for example /data1`,
	},
	"a host path over the runner itself": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /opt/}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/opt/": must not be a directory that the runner needs (/bin, /cloudconfig, /dev, /etc, /lib, /opt, /proc, /run, /sbin, /sys, /usr, /var/lib/kvm-operator); choose another path, for example /data1`,
	},
	"a host path over the etcd share": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /etc/kubernetes/data/etcd}]}]}}",
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "/etc/kubernetes/data/etcd": must not be a directory that the runner needs (/bin, /cloudconfig, /dev, /etc, /lib, /opt, /proc, /run, /sbin, /sys, /usr, /var/lib/kvm-operator); choose another path, for example /data1`,
	},
	"a host path of 101 characters": {
		change: "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]}]}}",
		want:   "spec.kvm.workers[0].hostVolumes[0].hostPath: Too long: may not be more than 100 bytes",
	},
	"an empty host path": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: ""}]}]}}`,
		want:   `spec.kvm.workers[0].hostVolumes[0].hostPath: Invalid value: "": must be an absolute path below / without '.', '..', ':' and ',', for example /data1`,
	},
	"an unknown storage type": {
		change: "spec: {kvm: {k8sKVM: {storageType: local}}}",
		want:   `spec.kvm.k8sKVM.storageType: Unsupported value: "local": supported values: "", "hostPath", "persistentVolume"`,
	},
	"an unknown acceleration": {
		change: "spec: {kvm: {k8sKVM: {acceleration: hvf}}}",
		want:   `spec.kvm.k8sKVM.acceleration: Unsupported value: "hvf": supported values: "", "auto", "kvm", "tcg"`,
	},
	"an etcd volume of no size": {
		change: `spec: {kvm: {etcd: {size: "0"}}}`,
		want:   `spec.kvm.etcd.size: Invalid value: "0": must be a quantity of more than zero, for example 15Gi`,
	},
	"an etcd volume of a number that is no size": {
		change: "spec: {kvm: {etcd: {size: 0}}}",
		want:   "spec.kvm.etcd.size: Invalid value: 0: must be a quantity of more than zero, for example 15Gi",
	},
	"an etcd volume of a size that Go cannot decode": {
		change: `spec: {kvm: {etcd: {size: "1e1.5"}}}`,
		want:   `spec.kvm.etcd.size: Invalid value: "1e1.5": must be a quantity of more than zero, for example 15Gi`,
	},
	"an etcd volume of a size that takes minutes to read": {
		change: `spec: {kvm: {etcd: {size: "1e-99999999"}}}`,
		want:   `spec.kvm.etcd.size: Invalid value: "1e-99999999": must be a quantity of more than zero, for example 15Gi`,
	},
	"an etcd volume of a size that is no quantity": {
		change: "spec: {kvm: {etcd: {size: 15GB}}}",
		want:   `spec.kvm.etcd.size: Invalid value: "15GB": spec.kvm.etcd.size in body should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'`,
	},
	"a storage class that cannot exist": {
		change: "spec: {kvm: {etcd: {storageClassName: Fast_SSD}}}",
		want:   `spec.kvm.etcd.storageClassName: Invalid value: "Fast_SSD": must be the name of a StorageClass, or empty for the default class`,
	},
	"a node port beyond the last port": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: 65536, targetPort: 80}]}}",
		want:   "spec.kvm.portMappings[0].nodePort: Invalid value: 65536: spec.kvm.portMappings[0].nodePort in body should be less than or equal to 65535",
	},
	"a negative node port": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: -1, targetPort: 80}]}}",
		want:   "spec.kvm.portMappings[0].nodePort: Invalid value: -1: spec.kvm.portMappings[0].nodePort in body should be greater than or equal to 0",
	},
	"a target port of 0": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: 30010, targetPort: 0}]}}",
		want:   "spec.kvm.portMappings[0].targetPort: Invalid value: 0: spec.kvm.portMappings[0].targetPort in body should be greater than or equal to 1",
	},
	"a target port beyond the last port": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: 30010, targetPort: 65536}]}}",
		want:   "spec.kvm.portMappings[0].targetPort: Invalid value: 65536: spec.kvm.portMappings[0].targetPort in body should be less than or equal to 65535",
	},
	"a port name with capitals": {
		change: "spec: {kvm: {portMappings: [{name: HTTP, nodePort: 30010, targetPort: 80}]}}",
		want:   `spec.kvm.portMappings[0].name: Invalid value: "HTTP": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example http`,
	},
	"several ports, one of them without name": {
		change: `spec: {kvm: {portMappings: [{name: "", nodePort: 30010, targetPort: 80}, {name: https, nodePort: 30011, targetPort: 443}]}}`,
		want:   "spec.kvm.portMappings: Invalid value: must give every port a name when there are several",
	},
	"one port name twice": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: 30010, targetPort: 80}, {name: http, nodePort: 30011, targetPort: 443}]}}",
		want:   `spec.kvm.portMappings[1]: Duplicate value: {"name":"http"}`,
	},
	"one node port twice": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: 30010, targetPort: 80}, {name: https, nodePort: 30010, targetPort: 443}]}}",
		want:   "spec.kvm.portMappings: Invalid value: must not use a nodePort twice; give every port its own nodePort",
	},
	"one target port twice": {
		change: "spec: {kvm: {portMappings: [{name: http, nodePort: 30010, targetPort: 80}, {name: https, nodePort: 30011, targetPort: 80}]}}",
		want:   "spec.kvm.portMappings: Invalid value: must not use a targetPort twice because it is the Service's port as well; remove one of the mappings",
	},
	"a VXLAN identifier of 25 bits": {
		change: "spec: {kvm: {network: {flannel: {vni: 16777216}}}}",
		want:   "spec.kvm.network.flannel.vni: Invalid value: 16777216: spec.kvm.network.flannel.vni in body should be less than or equal to 16777215",
	},
	"a negative VXLAN identifier": {
		change: "spec: {kvm: {network: {flannel: {vni: -1}}}}",
		want:   "spec.kvm.network.flannel.vni: Invalid value: -1: spec.kvm.network.flannel.vni in body should be greater than or equal to 0",
	},
}
