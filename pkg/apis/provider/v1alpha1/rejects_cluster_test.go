package v1alpha1_test

// What is wrong with spec.cluster, spec.cluster.kubernetes aside.
var rejectedCluster = map[string]rejection{
	"a cluster ID with capitals": {
		change: "spec: {cluster: {id: Demo}}",
		want:   `spec.cluster.id: Invalid value: "Demo": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example ab1cd`,
	},
	"a cluster ID that ends with a dash": {
		change: "spec: {cluster: {id: demo-}}",
		want:   `spec.cluster.id: Invalid value: "demo-": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example ab1cd`,
	},
	"an empty cluster ID": {
		change: `spec: {cluster: {id: ""}}`,
		want:   `spec.cluster.id: Invalid value: "": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example ab1cd`,
	},
	"a cluster ID of twelve characters": {
		change: "spec: {cluster: {id: abcdefghijkl}}",
		want:   "spec.cluster.id: Too long: may not be more than 11 bytes",
	},
	"a cluster ID that is the namespace default": {
		change: "spec: {cluster: {id: default}}",
		want:   `spec.cluster.id: Invalid value: "default": must not be the name of a system namespace (default, giantswarm, kube-...), because the cluster gets a namespace of this name; choose another ID`,
	},
	"a cluster ID that is a system namespace": {
		change: "spec: {cluster: {id: kube-system}}",
		want:   `spec.cluster.id: Invalid value: "kube-system": must not be the name of a system namespace (default, giantswarm, kube-...), because the cluster gets a namespace of this name; choose another ID`,
	},
	"a cluster ID that ends like a pair of etcd": {
		change: "spec: {cluster: {id: x-etcd}}",
		want:   `spec.cluster.id: Invalid value: "x-etcd": must not have etcd after a dash, or -apiserver or -psp at the end, because objects of another cluster may have such names; choose another ID`,
	},
	"a cluster ID that has a part like a pair of etcd": {
		change: "spec: {cluster: {id: x-etcd-y}}",
		want:   `spec.cluster.id: Invalid value: "x-etcd-y": must not have etcd after a dash, or -apiserver or -psp at the end, because objects of another cluster may have such names; choose another ID`,
	},
	"a cluster ID that ends like a pair of the API server": {
		change: "spec: {cluster: {id: x-apiserver}}",
		want:   `spec.cluster.id: Invalid value: "x-apiserver": must not have etcd after a dash, or -apiserver or -psp at the end, because objects of another cluster may have such names; choose another ID`,
	},
	"a cluster ID that ends like a binding": {
		change: "spec: {cluster: {id: x-psp}}",
		want:   `spec.cluster.id: Invalid value: "x-psp": must not have etcd after a dash, or -apiserver or -psp at the end, because objects of another cluster may have such names; choose another ID`,
	},
	"no cluster ID": {
		change: "spec: {cluster: {id: <remove>}}",
		want:   "spec.cluster.id: Required value",
	},
	"a customer that is no label value": {
		change: `spec: {cluster: {customer: {id: "acme corp"}}}`,
		want:   `spec.cluster.customer.id: Invalid value: "acme corp": must be a label value, letters, digits, '-', '_' and '.' with a letter or digit at both ends, because it becomes one`,
	},
	"no master": {
		change: "spec: {cluster: {masters: []}, kvm: {masters: []}}",
		want:   "spec.cluster.masters: Invalid value: must have 1, 3 or 5 entries, because etcd needs an odd number of members and gains nothing from more than 5",
	},
	"two masters": {
		change: "spec: {cluster: {masters: [{id: m1}, {id: m2}]}, kvm: {masters: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   "spec.cluster.masters: Invalid value: must have 1, 3 or 5 entries, because etcd needs an odd number of members and gains nothing from more than 5",
	},
	"a master whose certificate would have the name of etcd's authority": {
		change: "spec: {cluster: {masters: [{id: m1}, {id: ca}, {id: m3}]}, kvm: {masters: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   "spec.cluster.masters: Invalid value: must not have the id ca or ipv6, because etcd-ca and master-ipv6 are names of other objects of the cluster; choose another id",
	},
	"seven masters": {
		change: "spec: {cluster: {masters: [{id: m1}, {id: m2}, {id: m3}, {id: m4}, {id: m5}, {id: m6}, {id: m7}]}, kvm: {masters: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   "spec.cluster.masters: Invalid value: must have 1, 3 or 5 entries, because etcd needs an odd number of members and gains nothing from more than 5",
	},
	"no list of masters": {
		change: "spec: {cluster: {masters: <remove>}}",
		want:   "spec.cluster.masters: Required value",
	},
	"a node without ID": {
		change: "spec: {cluster: {workers: [{}]}}",
		want:   "spec.cluster.workers[0].id: Required value",
	},
	"a node with an empty ID": {
		change: `spec: {cluster: {workers: [{id: ""}]}}`,
		want:   `spec.cluster.workers[0].id: Invalid value: "": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example w0aaa`,
	},
	"a node ID with capitals": {
		change: "spec: {cluster: {workers: [{id: W1}]}}",
		want:   `spec.cluster.workers[0].id: Invalid value: "W1": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example w0aaa`,
	},
	"a node ID with a dot": {
		change: "spec: {cluster: {workers: [{id: w.1}]}}",
		want:   `spec.cluster.workers[0].id: Invalid value: "w.1": must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example w0aaa`,
	},
	"a node ID of forty characters": {
		change: "spec: {cluster: {workers: [{id: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]}}",
		want:   "spec.cluster.workers[0].id: Too long: may not be more than 39 bytes",
	},
	"one ID for two masters": {
		change: "spec: {cluster: {masters: [{id: m1}, {id: m1}, {id: m2}]}, kvm: {masters: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   `spec.cluster.masters[1]: Duplicate value: {"id":"m1"}`,
	},
	"one ID for two workers": {
		change: "spec: {cluster: {workers: [{id: w1}, {id: w1}]}, kvm: {workers: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		want:   `spec.cluster.workers[1]: Duplicate value: {"id":"w1"}`,
	},
	"one ID for a master and a worker": {
		change: "spec: {cluster: {workers: [{id: m1}]}}",
		want:   "spec.cluster.workers: Invalid value: must not repeat the ID of a master; give every node its own ID",
	},
	"a pod network with its prefix length in the wrong field": {
		change: "spec: {cluster: {calico: {subnet: 192.168.0.0/16}}}",
		want:   `spec.cluster.calico.subnet: Invalid value: "192.168.0.0/16": must be an IPv4 address without a prefix length, which goes to spec.cluster.calico.cidr, for example 192.168.0.0`,
	},
	"a pod network of IPv6": {
		change: `spec: {cluster: {calico: {subnet: "fd00::"}}}`,
		want:   `spec.cluster.calico.subnet: Invalid value: "fd00::": must be an IPv4 address without a prefix length, which goes to spec.cluster.calico.cidr, for example 192.168.0.0`,
	},
	"a pod network with a prefix length of 31": {
		change: "spec: {cluster: {calico: {cidr: 31}}}",
		want:   "spec.cluster.calico.cidr: Invalid value: 31: spec.cluster.calico.cidr in body should be less than or equal to 30",
	},
	"a pod network with a prefix length of 7": {
		change: "spec: {cluster: {calico: {cidr: 7}}}",
		want:   "spec.cluster.calico.cidr: Invalid value: 7: spec.cluster.calico.cidr in body should be greater than or equal to 8",
	},
	"an MTU below the least of IPv4": {
		change: "spec: {cluster: {calico: {mtu: 500}}}",
		want:   "spec.cluster.calico.mtu: Invalid value: 500: spec.cluster.calico.mtu in body should be greater than or equal to 576",
	},
	"an MTU beyond jumbo frames": {
		change: "spec: {cluster: {calico: {mtu: 9217}}}",
		want:   "spec.cluster.calico.mtu: Invalid value: 9217: spec.cluster.calico.mtu in body should be less than or equal to 9216",
	},
	"a pod network around the network of Services": {
		change: "spec: {cluster: {calico: {subnet: 172.16.0.0, cidr: 12}}}",
		want:   "spec.cluster.calico.subnet: Invalid value: must not overlap spec.cluster.kubernetes.api.clusterIPRange 172.31.0.0/16, but is 172.16.0.0/12; choose a pod network outside the network of Services",
	},
	"a pod network inside the network of Services": {
		change: "spec: {cluster: {calico: {subnet: 172.31.8.0, cidr: 24}}}",
		want:   "spec.cluster.calico.subnet: Invalid value: must not overlap spec.cluster.kubernetes.api.clusterIPRange 172.31.0.0/16, but is 172.31.8.0/24; choose a pod network outside the network of Services",
	},
	"a pod network that overlaps only by its host bits": {
		change: "spec: {cluster: {calico: {subnet: 172.30.255.1, cidr: 8}}}",
		want:   "spec.cluster.calico.subnet: Invalid value: must not overlap spec.cluster.kubernetes.api.clusterIPRange 172.31.0.0/16, but is 172.30.255.1/8; choose a pod network outside the network of Services",
	},
	"an etcd domain that is no DNS name": {
		change: `spec: {cluster: {etcd: {domain: "etcd_1.example.org"}}}`,
		want:   `spec.cluster.etcd.domain: Invalid value: "etcd_1.example.org": must be a lower-case DNS name, for example etcd.ab1cd.k8s.example.org, or left out`,
	},
	"an etcd domain that is the API domain": {
		change: "spec: {cluster: {etcd: {domain: api.demo.example.org}}}",
		want:   "spec.cluster.etcd.domain: Invalid value: must differ from spec.cluster.kubernetes.api.domain; leave it out to get etcd.<base domain>",
	},
	"an empty etcd prefix": {
		change: `spec: {cluster: {etcd: {prefix: ""}}}`,
		want:   `spec.cluster.etcd.prefix: Invalid value: "": must be a path of letters, digits, '.', '-' and '_', for example giantswarm.io`,
	},
	"an etcd prefix with spaces": {
		change: `spec: {cluster: {etcd: {prefix: "a b"}}}`,
		want:   `spec.cluster.etcd.prefix: Invalid value: "a b": must be a path of letters, digits, '.', '-' and '_', for example giantswarm.io`,
	},
}
