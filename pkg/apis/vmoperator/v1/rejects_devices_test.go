package v1_test

import "strings"

// repeat returns entries of a list.
func repeat(entry string, times int) string {
	return strings.TrimSuffix(strings.Repeat(entry+", ", times), ", ")
}

// What is wrong with the networks, disks and the display of spec.vm.
var rejectedDevices = map[string]rejection{
	"a network without a type": {
		change: "spec: {vm: {networks: [{}]}}",
		want:   "spec.vm.networks[0]: Invalid value: must have exactly one of tap, user and pod; write user: {} for a network behind the pod's",
	},
	"a network with two types": {
		change: "spec: {vm: {networks: [{tap: {}, user: {}}]}}",
		want:   "spec.vm.networks[0]: Invalid value: must have exactly one of tap, user and pod; write user: {} for a network behind the pod's",
	},
	"a network of the pod beside another": {
		change: "spec: {vm: {networks: [{pod: {}}, {user: {}}]}}",
		want:   "spec.vm.networks: Invalid value: must not have other networks beside one of type pod, because the guest has the pod's only address",
	},
	"the network of the pod twice": {
		change: "spec: {vm: {networks: [{pod: {}}, {pod: {}}]}}",
		want:   "spec.vm.networks: Invalid value: must not have other networks beside one of type pod, because the guest has the pod's only address",
	},
	"nine networks": {
		change: "spec: {vm: {networks: [" + repeat("{user: {}}", 9) + "]}}",
		want:   "spec.vm.networks: Too many: 9: must have at most 8 items",
	},
	"an option in a card": {
		change: `spec: {vm: {networks: [{tap: {device: "virtio-net,romfile=/etc/shadow"}}]}}`,
		want:   `spec.vm.networks[0].tap.device: Unsupported value: "virtio-net,romfile=/etc/shadow": supported values: "virtio-net", "virtio-net-pci", "e1000e", "e1000", "rtl8139"`,
	},
	"an unknown card": {
		change: "spec: {vm: {networks: [{user: {device: ne2k}}]}}",
		want:   `spec.vm.networks[0].user.device: Unsupported value: "ne2k": supported values: "virtio-net", "virtio-net-pci", "e1000e", "e1000", "rtl8139"`,
	},
	"a bridge of 16 characters": {
		change: "spec: {vm: {networks: [{tap: {bridge: a234567890123456}}]}}",
		want:   `spec.vm.networks[0].tap.bridge: Invalid value: "a234567890123456": must be the name of a bridge, letters, digits, '.', '_' and '-', at most 15 characters, for example br0`,
	},
	"a path as bridge": {
		change: "spec: {vm: {networks: [{tap: {bridge: ../br0}}]}}",
		want:   `spec.vm.networks[0].tap.bridge: Invalid value: "../br0": must be the name of a bridge, letters, digits, '.', '_' and '-', at most 15 characters, for example br0`,
	},
	"a multicast address": {
		change: `spec: {vm: {networks: [{tap: {mac: "53:54:00:00:00:01"}}]}}`,
		want:   `spec.vm.networks[0].tap.mac: Invalid value: "53:54:00:00:00:01": must be a unicast MAC address of six bytes, of which the first is even, for example 52:54:00:12:34:56; leave it out to get one`,
	},
	"a short address": {
		change: `spec: {vm: {networks: [{tap: {mac: "52:54:00:00:00"}}]}}`,
		want:   `spec.vm.networks[0].tap.mac: Invalid value: "52:54:00:00:00": must be a unicast MAC address of six bytes, of which the first is even, for example 52:54:00:12:34:56; leave it out to get one`,
	},
	"an address of zeros": {
		change: `spec: {vm: {networks: [{tap: {mac: "00:00:00:00:00:00"}}]}}`,
		want:   `spec.vm.networks[0].tap.mac: Invalid value: "00:00:00:00:00:00": must be a unicast MAC address of six bytes, of which the first is even, for example 52:54:00:12:34:56; leave it out to get one`,
	},
	"an IPv6 network": {
		change: `spec: {vm: {networks: [{user: {net: "fd00::/64"}}]}}`,
		want:   `spec.vm.networks[0].user.net: Invalid value: "fd00::/64": must be an IPv4 network with a prefix length of 8 to 27, for example 10.9.0.0/24`,
	},
	"an option in a network": {
		change: `spec: {vm: {networks: [{user: {net: "10.9.0.0/24,restrict=off"}}]}}`,
		want:   `spec.vm.networks[0].user.net: Invalid value: "10.9.0.0/24,restrict=off": must be an IPv4 network with a prefix length of 8 to 27, for example 10.9.0.0/24`,
	},
	"a network without prefix length": {
		change: "spec: {vm: {networks: [{user: {net: 10.9.0.0}}]}}",
		want:   `spec.vm.networks[0].user.net: Invalid value: "10.9.0.0": must be an IPv4 network with a prefix length of 8 to 27, for example 10.9.0.0/24`,
	},
	"a network of four addresses": {
		change: "spec: {vm: {networks: [{user: {net: 10.9.0.0/30}}]}}",
		want:   `spec.vm.networks[0].user.net: Invalid value: "10.9.0.0/30": must be an IPv4 network with a prefix length of 8 to 27, for example 10.9.0.0/24`,
	},
	"a disk without a type": {
		change: "spec: {vm: {disks: [{bootindex: 0}]}}",
		want:   `spec.vm.disks[0]: Invalid value: must have exactly one of volumeClaimTemplate and cdrom; write cdrom: {image: ""} for an empty drive`,
	},
	"a disk with two types": {
		change: "spec: {vm: {disks: [{cdrom: {image: a}, volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0]: Invalid value: must have exactly one of volumeClaimTemplate and cdrom; write cdrom: {image: ""} for an empty drive`,
	},
	"a drive without an image": {
		change: "spec: {vm: {disks: [{cdrom: {}}]}}",
		want:   "spec.vm.disks[0].cdrom.image: Required value",
	},
	"a device as image": {
		change: "spec: {vm: {disks: [{cdrom: {image: /dev/sda}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "/dev/sda": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"a parent as image": {
		change: "spec: {vm: {disks: [{cdrom: {image: ../x}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "../x": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"a hidden parent as image": {
		change: "spec: {vm: {disks: [{cdrom: {image: a/../../x}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "a/../../x": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"ssh as image": {
		change: "spec: {vm: {disks: [{cdrom: {image: 'ssh://host/x'}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "ssh://host/x": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"json as image": {
		change: "spec: {vm: {disks: [{cdrom: {image: 'json:{}'}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "json:{}": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"a file URL as image": {
		change: "spec: {vm: {disks: [{cdrom: {image: 'file:///etc/shadow'}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "file:///etc/shadow": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"a URL without a file": {
		change: "spec: {vm: {disks: [{cdrom: {image: 'https://host'}}]}}",
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "https://host": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"a line break in an image": {
		change: `spec: {vm: {disks: [{cdrom: {image: "a\nb"}}]}}`,
		want:   `spec.vm.disks[0].cdrom.image: Invalid value: "a\nb": must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso`,
	},
	"seven drives": {
		change: "spec: {vm: {disks: [" + repeat(`{cdrom: {image: ""}}`, 7) + "]}}",
		want:   "spec.vm.disks: Invalid value: must not have more than 6 CD drives, because the machine has no more ports for them; remove some",
	},
	"21 disks": {
		change: "spec: {vm: {disks: [" + repeat("{volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}", 21) + "]}}",
		want:   "spec.vm.disks: Too many: 21: must have at most 20 items",
	},
	"a bootindex twice": {
		change: `spec: {vm: {disks: [{cdrom: {image: ""}, bootindex: 1}, {cdrom: {image: a}, bootindex: 1}]}}`,
		want:   "spec.vm.disks: Invalid value: must not have a bootindex twice; give every disk its own bootindex, or leave it out",
	},
	"a negative bootindex": {
		change: `spec: {vm: {disks: [{cdrom: {image: ""}, bootindex: -1}]}}`,
		want:   "spec.vm.disks[0].bootindex: Invalid value: -1: spec.vm.disks[0].bootindex in body should be greater than or equal to 0",
	},
	"a disk name twice": {
		change: "spec: {vm: {disks: [" + repeat("{volumeClaimTemplate: {metadata: {name: a}, spec: {resources: {requests: {storage: 1Gi}}}}}", 2) + "]}}",
		want:   "spec.vm.disks: Invalid value: must not have two disks of one name; give every disk its own name",
	},
	"a disk name in upper case": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {metadata: {name: A}, spec: {resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.metadata.name: Invalid value: "A": must be a lower-case DNS label of at most 53 characters, letters, digits and '-', for example system; leave it out to get a number`,
	},
	"a disk name of 54 characters": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {metadata: {name: a23456789012345678901234567890123456789012345678901234}, spec: {resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.metadata.name: Invalid value: "a23456789012345678901234567890123456789012345678901234": must be a lower-case DNS label of at most 53 characters, letters, digits and '-', for example system; leave it out to get a number`,
	},
	"an empty disk name": {
		change: `spec: {vm: {disks: [{volumeClaimTemplate: {metadata: {name: ""}, spec: {resources: {requests: {storage: 1Gi}}}}}]}}`,
		want:   `spec.vm.disks[0].volumeClaimTemplate.metadata.name: Invalid value: "": must be a lower-case DNS label of at most 53 characters, letters, digits and '-', for example system; leave it out to get a number`,
	},
	"the runner's own disk": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {metadata: {name: runner-data}, spec: {resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.metadata.name: Invalid value: "runner-data": must not be runner-data, which is the runner's own volume; choose another name`,
	},
	"a disk without a size": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {}}}]}}",
		want:   "spec.vm.disks[0].volumeClaimTemplate.spec: Invalid value: must request storage; write resources: {requests: {storage: 10Gi}}, for example",
	},
	"a size of no quantity": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {resources: {requests: {storage: big}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.spec.resources.requests[storage]: Invalid value: "big": must be a quantity of zero or more, for example 2, 500m or 4Gi`,
	},
	"a file system": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.spec.volumeMode: Invalid value: "Filesystem": must be Block, because the volume itself is the disk; write volumeMode: Block, or leave it out`,
	},
	"an unknown access mode": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {accessModes: [Write], resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.spec.accessModes[0]: Unsupported value: "Write": supported values: "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"`,
	},
	"a class in upper case": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {storageClassName: A, resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.spec.storageClassName: Invalid value: "A": must be the name of a StorageClass, or empty for a volume without one`,
	},
	"an attributes class with a line": {
		change: `spec: {vm: {disks: [{volumeClaimTemplate: {spec: {volumeAttributesClassName: "a\n", resources: {requests: {storage: 1Gi}}}}}]}}`,
		want:   `spec.vm.disks[0].volumeClaimTemplate.spec.volumeAttributesClassName: Invalid value: "a\n": must be the name of a VolumeAttributesClass, or empty for none`,
	},
	"a volume in upper case": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {volumeName: A, resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   `spec.vm.disks[0].volumeClaimTemplate.spec.volumeName: Invalid value: "A": must be the name of a PersistentVolume, or empty for any`,
	},
	"a source without a kind": {
		change: "spec: {vm: {disks: [{volumeClaimTemplate: {spec: {dataSource: {name: a}, resources: {requests: {storage: 1Gi}}}}}]}}",
		want:   "spec.vm.disks[0].volumeClaimTemplate.spec.dataSource.kind: Required value",
	},
	"no screen": {
		change: "spec: {vm: {display: {outputs: 0}}}",
		want:   "spec.vm.display.outputs: Invalid value: 0: spec.vm.display.outputs in body should be greater than or equal to 1",
	},
	"17 screens": {
		change: "spec: {vm: {display: {outputs: 17}}}",
		want:   "spec.vm.display.outputs: Invalid value: 17: spec.vm.display.outputs in body should be less than or equal to 16",
	},
	"a privileged port": {
		change: "spec: {vm: {display: {spice: {port: 443}}}}",
		want:   "spec.vm.display.spice.port: Invalid value: 443: spec.vm.display.spice.port in body should be greater than or equal to 1024",
	},
	"a port that does not exist": {
		change: "spec: {vm: {display: {spice: {port: 65536}}}}",
		want:   "spec.vm.display.spice.port: Invalid value: 65536: spec.vm.display.spice.port in body should be less than or equal to 65535",
	},
	"17 USB devices": {
		change: "spec: {vm: {display: {spice: {usbRedirects: 17}}}}",
		want:   "spec.vm.display.spice.usbRedirects: Invalid value: 17: spec.vm.display.spice.usbRedirects in body should be less than or equal to 16",
	},
	"a negative number of devices": {
		change: "spec: {vm: {display: {spice: {usbRedirects: -1}}}}",
		want:   "spec.vm.display.spice.usbRedirects: Invalid value: -1: spec.vm.display.spice.usbRedirects in body should be greater than or equal to 0",
	},
	"an unknown video": {
		change: `spec: {vm: {display: {spice: {streamingVideo: "all,addr=::"}}}}`,
		want:   `spec.vm.display.spice.streamingVideo: Unsupported value: "all,addr=::": supported values: "off", "all", "filter"`,
	},
	"a server with a port": {
		change: `spec: {vm: {display: {spice: {server: "host:5900"}}}}`,
		want:   `spec.vm.display.spice.server: Invalid value: "host:5900": must be a host name or an IP address without a port, for example 192.0.2.7`,
	},
	"a server with a line break": {
		change: `spec: {vm: {display: {spice: {server: "host\nfoo=bar"}}}}`,
		want:   `spec.vm.display.spice.server: Invalid value: "host\nfoo=bar": must be a host name or an IP address without a port, for example 192.0.2.7`,
	},
	"a proxy without scheme": {
		change: `spec: {vm: {display: {spice: {proxyUrl: "proxy:3128"}}}}`,
		want:   `spec.vm.display.spice.proxyUrl: Invalid value: "proxy:3128": must be an http or https URL of a proxy, for example http://proxy.example.org:3128`,
	},
	"a proxy with a line break": {
		change: `spec: {vm: {display: {spice: {proxyUrl: "http://proxy\nfoo=bar"}}}}`,
		want:   `spec.vm.display.spice.proxyUrl: Invalid value: "http://proxy\nfoo=bar": must be an http or https URL of a proxy, for example http://proxy.example.org:3128`,
	},
}
