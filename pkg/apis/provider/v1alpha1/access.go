package v1alpha1

// AccessType is how the API of the workload cluster is reached from outside.
//
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer;Ingress
type AccessType string

const (
	// AccessClusterIP serves the management cluster only.
	AccessClusterIP AccessType = "ClusterIP"
	// AccessNodePort opens a port on every host of the management cluster.
	AccessNodePort AccessType = "NodePort"
	// AccessLoadBalancer asks the management cluster for a load balancer.
	AccessLoadBalancer AccessType = "LoadBalancer"
	// AccessIngress goes through the Ingress "api" by spec.cluster.kubernetes.api.domain.
	AccessIngress AccessType = "Ingress"
)

// Access is how people reach the API of the workload cluster. The kubeconfig in Secret <id>-kubeconfig has this address.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodePort) || self.nodePort == 0 || self.type == 'NodePort' || self.type == 'LoadBalancer'",fieldPath=".nodePort",message="needs type NodePort or LoadBalancer; remove it, or change the type"
// +kubebuilder:validation:XValidation:rule="self.type != 'NodePort' || (has(self.host) && self.host != \"\")",fieldPath=".host",message="must name a host of the management cluster, or what leads to them, when the type is NodePort"
type Access struct {
	// Type is how the API is published: by a Service "api" of that type, by the Ingress "api", or only by the Service
	// "master".
	//
	// +kubebuilder:default=ClusterIP
	Type AccessType `json:"type,omitempty"`

	// Host is the host name or IP address in the kubeconfig. If it is not set, the kubeconfig has the address of the load
	// balancer, the domain of the API with an Ingress, or otherwise the name of the Service in the management cluster.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || isIP(self) || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be an IP address or a lower case host name, without scheme and port"
	Host string `json:"host,omitempty"`

	// NodePort is the port on the hosts. Zero lets the management cluster choose one.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`

	// CertSANs are names and IP addresses in the API server's certificate, in addition to Host. Adding one renews the
	// certificate, which replaces the masters.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || self.matches('^([*][.])?[A-Za-z0-9_][A-Za-z0-9_-]{0,62}([.][A-Za-z0-9_][A-Za-z0-9_-]{0,62})*$')",message="must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org"
	// +listType=set
	CertSANs []string `json:"certSANs,omitempty"`
}
