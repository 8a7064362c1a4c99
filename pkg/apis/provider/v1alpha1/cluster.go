package v1alpha1

// Cluster is the workload cluster as Kubernetes sees it.
//
// Node IDs are unique across both lists because everything of a node, its index included, is keyed by the ID alone.
// Pods and Services share one routing table in every node, so their networks must not overlap. Ingress tells the API
// and etcd apart by host name only.
//
// The prefix length of the pod network is cut out of a text because the API server cannot bound the cost of a rule that
// turns a number into one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || !self.workers.exists(w, self.masters.exists(m, m.id == w.id))",fieldPath=".workers",message="must not repeat the ID of a master; give every node its own ID"
// +kubebuilder:validation:XValidation:rule="self.calico.cidr < 8 || self.calico.cidr > 30 || !isCIDR(self.calico.subnet + '/' + ' 8 9101112131415161718192021222324252627282930'.substring(2 * (self.calico.cidr - 8), 2 * (self.calico.cidr - 7)).trim()) || !isCIDR(self.kubernetes.api.clusterIPRange) || !cidr(self.calico.subnet + '/' + ' 8 9101112131415161718192021222324252627282930'.substring(2 * (self.calico.cidr - 8), 2 * (self.calico.cidr - 7)).trim()).containsCIDR(self.kubernetes.api.clusterIPRange) && !cidr(self.kubernetes.api.clusterIPRange).containsCIDR(self.calico.subnet + '/' + ' 8 9101112131415161718192021222324252627282930'.substring(2 * (self.calico.cidr - 8), 2 * (self.calico.cidr - 7)).trim())",fieldPath=".calico.subnet",message="must not overlap spec.cluster.kubernetes.api.clusterIPRange; choose a pod network outside the network of Services",messageExpression="'must not overlap spec.cluster.kubernetes.api.clusterIPRange ' + self.kubernetes.api.clusterIPRange + ', but is ' + self.calico.subnet + '/' + ' 8 9101112131415161718192021222324252627282930'.substring(2 * (self.calico.cidr - 8), 2 * (self.calico.cidr - 7)).trim() + '; choose a pod network outside the network of Services'"
// +kubebuilder:validation:XValidation:rule="self.?etcd.?domain.orValue(\"\") != self.kubernetes.api.domain",fieldPath=".etcd.domain",message="must differ from spec.cluster.kubernetes.api.domain; leave it out to get etcd.<base domain>"
type Cluster struct {
	// ID names the cluster: its namespace on the management cluster, its service account and its labels. A lower-case
	// DNS label of at most 11 characters; "default", "giantswarm" and names that begin with "kube-" are reserved, and
	// so are those with "etcd" after a dash, or with "-apiserver" or "-psp" at the end: the objects of another cluster
	// may have such names. Immutable, because every object of the cluster is named after it.
	//
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example ab1cd"
	// +kubebuilder:validation:XValidation:rule="!(self in ['default', 'giantswarm']) && !self.startsWith('kube-')",message="must not be the name of a system namespace (default, giantswarm, kube-...), because the cluster gets a namespace of this name; choose another ID"
	// +kubebuilder:validation:XValidation:rule="!self.matches('-etcd(-|$)|-(apiserver|psp)$')",message="must not have etcd after a dash, or -apiserver or -psp at the end, because objects of another cluster may have such names; choose another ID"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable because all objects of the cluster are named after it; create another KVMConfig instead"
	ID string `json:"id"`

	// Customer owns the cluster.
	Customer Customer `json:"customer,omitzero"`

	// Masters are the nodes that run the control plane and etcd: 1, 3 or 5. They can be added, removed and replaced later.
	// The operator changes members of etcd one at a time, and a machine stays until its member is removed. Each change has
	// to keep one of the present masters, because it has the data.
	//
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="size(self) in [1, 3, 5]",message="must have 1, 3 or 5 entries, because etcd needs an odd number of members and gains nothing from more than 5"
	// +kubebuilder:validation:XValidation:rule="oldSelf.exists(o, self.exists(m, m.id == o.id))",message="must keep one of the present masters at least, because etcd's data comes from there; replace the others first and this one later"
	// +kubebuilder:validation:XValidation:rule="self.all(m, !(m.id in ['ca', 'ipv6']))",message="must not have the id ca or ipv6, because etcd-ca and master-ipv6 are names of other objects of the cluster; choose another id"
	Masters []Node `json:"masters"`

	// Workers are the nodes that run workloads, at most 500.
	//
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=500
	Workers []Node `json:"workers,omitempty"`

	// Scaling is informational.
	Scaling Scaling `json:"scaling,omitzero"`

	// Calico is the pod network of any CNI; the name is historical.
	//
	// +kubebuilder:default={}
	Calico Calico `json:"calico,omitzero"`

	// Docker is accepted for old manifests and ignored; the container runtime is containerd.
	//
	// +kubebuilder:default={}
	Docker Docker `json:"docker,omitzero"`

	// Etcd is the cluster's etcd.
	//
	// +kubebuilder:default={}
	Etcd Etcd `json:"etcd,omitzero"`

	// Kubernetes is the control plane and the kubelets.
	Kubernetes Kubernetes `json:"kubernetes"`

	// Version is accepted for old manifests and ignored.
	//
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`
}

// Customer is the organization that owns a cluster.
type Customer struct {
	// ID becomes the labels customer, giantswarm.io/organization and giantswarm.io/customer-id. A label value: at most 63
	// letters, digits, '-', '_' and '.'.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="must be a label value, letters, digits, '-', '_' and '.' with a letter or digit at both ends, because it becomes one"
	ID string `json:"id,omitempty"`
}

// Node is one node of the cluster.
type Node struct {
	// ID is the node's identity: everything that belongs to the node is keyed by it. A lower-case DNS label of at most 39
	// characters, because the node pod is called "<role>-<id>-<hash>-<random>" and its name has to fit the 63 characters
	// of a host name.
	//
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example w0aaa"
	ID string `json:"id"`
}

// Scaling is informational.
type Scaling struct {
	// Max is informational.
	//
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	Max int32 `json:"max,omitempty"`
	// Min is informational.
	//
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	Min int32 `json:"min,omitempty"`
}

// Calico is the pod network.
//
// +kubebuilder:validation:XValidation:rule="!has(self.cidr) || !has(self.subnet) || self.cidr < 8 || self.cidr > 15 || !isIP(self.subnet) || !cidr(['169.0.0.0/8', '169.128.0.0/9', '169.192.0.0/10', '169.224.0.0/11', '169.240.0.0/12', '169.248.0.0/13', '169.252.0.0/14', '169.254.0.0/15'][self.cidr - 8]).containsIP(self.subnet)",message="must not contain 169.254.0.0/16 (link-local), where no pod is reached; choose another network, for example 192.168.0.0 with cidr 16"
type Calico struct {
	// CIDR is the prefix length of the pod network, 8 to 30. Immutable, because nodes and pods have addresses of the network.
	//
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=30
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable, because nodes and pods hold addresses of the pod network; create another cluster instead"
	CIDR int32 `json:"cidr,omitempty"`

	// MTU is the MTU of pod interfaces in bytes, 576 to 9216. It must leave room for the encapsulation of the CNI below
	// the MTU of the management cluster's pods. Default: the MTU of the nodes, less that encapsulation.
	//
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9216
	MTU int32 `json:"mtu,omitempty"`

	// Subnet is the base address of the pod network, for example 192.168.0.0. IPv4. Immutable, because nodes and pods
	// have addresses of the network.
	//
	// +kubebuilder:default="192.168.0.0"
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="must be an IPv4 address without a prefix length, which goes to spec.cluster.calico.cidr, for example 192.168.0.0"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).family() != 4 || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3'].exists(n, cidr(n).containsIP(self))",message="must not lie in 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no pod is reached; choose another network, for example 192.168.0.0"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable, because nodes and pods hold addresses of the pod network; create another cluster instead"
	Subnet string `json:"subnet,omitempty"`
}

// Docker is accepted for old manifests and ignored: the container runtime is containerd and has no bridge of its own.
type Docker struct {
	// Daemon is ignored.
	//
	// +kubebuilder:default={}
	Daemon DockerDaemon `json:"daemon,omitzero"`
}

// DockerDaemon is accepted for old manifests and ignored.
type DockerDaemon struct {
	// CIDR is ignored.
	//
	// +kubebuilder:default="172.17.0.1/16"
	// +kubebuilder:validation:MaxLength=253
	CIDR string `json:"cidr,omitempty"`
}

// Etcd is the cluster's etcd.
type Etcd struct {
	// AltNames is accepted for old manifests and ignored.
	//
	// +kubebuilder:validation:MaxLength=4096
	AltNames string `json:"altNames,omitempty"`

	// Domain is the host name of etcd outside the cluster, "etcd.<base>". Default: derived from the API domain.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be a lower-case DNS name, for example etcd.ab1cd.k8s.example.org, or left out"
	// +kubebuilder:validation:XValidation:rule="!isIP(self)",message="must be a name, not an address, because it is the host of an Ingress; leave it out to get etcd.<base domain>"
	Domain string `json:"domain,omitempty"`

	// Port is accepted for old manifests and ignored.
	//
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	Port int32 `json:"port,omitempty"`

	// Prefix is the key prefix of the API server in etcd: letters, digits, '.', '-', '_' and '/'. Immutable, because under
	// another prefix the API server finds an empty cluster.
	//
	// +kubebuilder:default="giantswarm.io"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$')",message="must be a path of letters, digits, '.', '-' and '_', for example giantswarm.io"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable, because under another prefix the API server finds an empty cluster; create another cluster instead"
	Prefix string `json:"prefix,omitempty"`
}
