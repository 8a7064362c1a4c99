package v1alpha1

// Kubernetes is the control plane and the kubelets.
//
// The DNS service keeps its address: kubelets have written it into every running pod, and a Service cannot change it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.dns) || !has(self.dns.ip) || !isIP(self.dns.ip) || ip(self.dns.ip).family() != 4 || !isCIDR(self.api.clusterIPRange) || cidr(self.api.clusterIPRange).containsIP(self.dns.ip)",fieldPath=".dns.ip",message="must lie inside spec.cluster.kubernetes.api.clusterIPRange; leave it out to get the network's tenth address",messageExpression="'must lie inside spec.cluster.kubernetes.api.clusterIPRange ' + self.api.clusterIPRange + '; leave it out to get the tenth address of the network'"
// +kubebuilder:validation:XValidation:rule="(has(self.dns) && has(self.dns.ip) ? self.dns.ip : \"\") == (has(oldSelf.dns) && has(oldSelf.dns.ip) ? oldSelf.dns.ip : \"\")",fieldPath=".dns.ip",message="is immutable, because running pods resolve names through it; set it back"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.dns) || !has(self.dns.ip) || !isIP(self.dns.ip) || ip(self.dns.ip).family() != 4 || !isCIDR(self.api.clusterIPRange) || !cidr(self.api.clusterIPRange).containsIP(self.dns.ip) || cidr(self.api.clusterIPRange).prefixLength() < 12 || cidr(self.api.clusterIPRange).prefixLength() > 28 || [self.dns.ip.split('.').map(o, int(o))].all(o, (o[0] * 16777216 + o[1] * 65536 + o[2] * 256 + o[3] + 1) % [1048576, 524288, 262144, 131072, 65536, 32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16][cidr(self.api.clusterIPRange).prefixLength() - 12] > 2)",optionalOldSelf=true,fieldPath=".dns.ip",message="must not be the network's own address, its first, which is the API's, or its last; leave it out to get the tenth address of the network"
type Kubernetes struct {
	// API is the API server.
	API KubernetesAPI `json:"api"`

	// CloudProvider is accepted for old manifests and ignored.
	//
	// +kubebuilder:validation:MaxLength=253
	CloudProvider string `json:"cloudProvider,omitempty"`

	// DNS is the cluster's DNS service.
	DNS KubernetesDNS `json:"dns,omitzero"`

	// Domain is the DNS domain of the cluster. Immutable, because names in running pods and
	// certificates contain it.
	//
	// +kubebuilder:default="cluster.local"
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a lower-case DNS name, for example cluster.local"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable, because it is part of names that running pods and certificates hold; create another cluster instead"
	Domain string `json:"domain,omitempty"`

	// IngressController is accepted for old manifests and ignored.
	IngressController IngressController `json:"ingressController,omitzero"`

	// Kubelet is the node agent.
	//
	// +kubebuilder:default={}
	Kubelet Kubelet `json:"kubelet,omitzero"`

	// NetworkSetup has settings of kube-proxy.
	NetworkSetup NetworkSetup `json:"networkSetup,omitzero"`

	// SSH lists the users who may log in to the nodes.
	SSH SSH `json:"ssh,omitzero"`
}

// KubernetesAPI is the API server.
//
// +kubebuilder:validation:XValidation:rule="!has(self.oidc) || self.oidc.issuerURL != 'https://' + self.domain",message="oidc.issuerURL must not be the API's own address, which is the issuer of the cluster's service accounts: name the provider of sign-on"
type KubernetesAPI struct {
	// ClusterIPRange is the network of Services, for example 172.31.0.0/16. IPv4 with a prefix length of 12 to 28.
	// Immutable, because Services have addresses of the network, and certificates contain its first one.
	//
	// +kubebuilder:default="172.31.0.0/16"
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).prefixLength() >= 12 && cidr(self).prefixLength() <= 28",message="must be an IPv4 network with a prefix length of 12 to 28, for example 172.31.0.0/16"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() != 4 || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3'].exists(n, cidr(n).containsCIDR(self) || cidr(self).containsCIDR(n))",message="must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable, because Services hold addresses of the network; create another cluster instead"
	ClusterIPRange string `json:"clusterIPRange,omitempty"`

	// Domain is the host name of the API, "api.<base>"; other names of the cluster are derived from the base. Immutable,
	// because every kubeconfig and certificate of the cluster contains it, and it is the issuer of service account tokens.
	//
	// +kubebuilder:validation:MaxLength=250
	// +kubebuilder:validation:XValidation:rule="self.startsWith('api.') && !format.dns1123Subdomain().validate(self).hasValue()",message="must be a lower-case DNS name that begins with \"api.\", for example api.ab1cd.k8s.example.org"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable, because it is in every kubeconfig and certificate of the cluster; create another cluster instead"
	Domain string `json:"domain"`

	// SecurePort is the port of the API server, in the guest and on the Service. Ports that a master uses for other purposes are
	// refused: 22 (SSH), 179 (BGP), 2379 to 2381 (etcd), 10248 to 10250 and 10255 to 10259 (kubelet, kube-proxy, control plane).
	// Immutable, because kubelets connect to it.
	//
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="!(self in [22, 179, 2379, 2380, 2381, 10248, 10249, 10250, 10255, 10256, 10257, 10258, 10259])",message="must not be a port that a master uses otherwise: 22, 179, 2379-2381, 10248-10250, 10255-10259; 443 is recommended"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable because every node and kubeconfig reaches the API by it; create another cluster instead"
	SecurePort int32 `json:"securePort,omitempty"`

	// OIDC configures single sign-on for this cluster. If it is not set, the settings of the operator apply.
	OIDC *OIDC `json:"oidc,omitempty"`
}

// OIDC is an OpenID Connect provider that the API server trusts.
type OIDC struct {
	// ClientID is the audience that tokens must have.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[^\p{C}\x{fffe}\x{ffff}]*$')`,message="must not have control characters, which no configuration file of the API server can hold"
	ClientID string `json:"clientID"`

	// IssuerURL is the provider's https URL. It is what the API server accepts: no user name, query or fragment, and not
	// the cluster's own API, which issues the tokens of service accounts.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https://[^/?#]*@')",message="must not hold a user name or password, which the API server does not accept"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\"\\'`$<>{}|^]|\\\\p{Cc}') && !self.contains('\\\\') && isURL(self) && url(self).getHostname() != ''",message="must be a URL without quotes and control characters, for example https://dex.example.org"
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://[^/?#[:space:]]+(/[^?#[:space:]]*)?$')",message="must be an https URL without query and fragment, for example https://dex.example.org"
	IssuerURL string `json:"issuerURL"`

	// UsernameClaim is the claim with the user name.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[^\p{C}\x{fffe}\x{ffff}]*$')`,message="must not have control characters, which no configuration file of the API server can hold"
	UsernameClaim string `json:"usernameClaim,omitempty"`

	// UsernamePrefix is the prefix of user names.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[^\p{C}\x{fffe}\x{ffff}]*$')`,message="must not have control characters, which no configuration file of the API server can hold"
	UsernamePrefix string `json:"usernamePrefix,omitempty"`

	// GroupsClaim is the claim with the groups.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[^\p{C}\x{fffe}\x{ffff}]*$')`,message="must not have control characters, which no configuration file of the API server can hold"
	GroupsClaim string `json:"groupsClaim,omitempty"`

	// GroupsPrefix is the prefix of groups.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[^\p{C}\x{fffe}\x{ffff}]*$')`,message="must not have control characters, which no configuration file of the API server can hold"
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
}

// KubernetesDNS is the cluster's DNS service.
type KubernetesDNS struct {
	// IP is the address of the DNS service, in the network of Services. Default: the tenth address of the
	// network. Immutable, because running pods use it to resolve names.
	//
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == \"\" || isIP(self) && ip(self).family() == 4",message="must be an IPv4 address, for example 172.31.0.10, or left out"
	IP string `json:"ip,omitempty"`
}

// IngressController is accepted for old manifests and ignored.
type IngressController struct {
	// Docker is ignored.
	Docker DockerImage `json:"docker,omitzero"`
	// Domain is ignored.
	//
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain,omitempty"`
	// InsecurePort is ignored.
	//
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	InsecurePort int32 `json:"insecurePort,omitempty"`
	// SecurePort is ignored.
	//
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	SecurePort int32 `json:"securePort,omitempty"`
	// WildcardDomain is ignored.
	//
	// +kubebuilder:validation:MaxLength=253
	WildcardDomain string `json:"wildcardDomain,omitempty"`
}

// DockerImage is accepted for old manifests and ignored.
type DockerImage struct {
	// Image is ignored.
	//
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// Kubelet is the node agent.
type Kubelet struct {
	// AltNames is accepted for old manifests and ignored.
	//
	// +kubebuilder:validation:MaxLength=4096
	AltNames string `json:"altNames,omitempty"`

	// Domain is the common name of the "worker" certificate, "worker.<base>". Default: derived from the API domain.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be a lower-case DNS name, for example worker.ab1cd.k8s.example.org, or left out"
	Domain string `json:"domain,omitempty"`

	// Labels are additional labels of every Node, "key=value" separated by commas. Of the keys that belong to Kubernetes,
	// kubelets may set only those below node.kubernetes.io/ and kubelet.kubernetes.io/, topology.kubernetes.io/region and
	// topology.kubernetes.io/zone. Others are refused, because a kubelet does not start with them.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?(,([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)*)?$')",message="must be labels as key=value, separated by commas and without spaces, for example example.org/rack=r1,disk=ssd"
	// +kubebuilder:validation:XValidation:rule="!(',' + self).replace(',node.kubernetes.io/', ',').replace(',kubelet.kubernetes.io/', ',').replace(',topology.kubernetes.io/region=', ',').replace(',topology.kubernetes.io/zone=', ',').matches('[,.](kubernetes|k8s)[.]io/')",message="must not set labels of kubernetes.io or k8s.io other than node.kubernetes.io/..., kubelet.kubernetes.io/... and topology.kubernetes.io/{region,zone}, because kubelets refuse to start with them; remove them"
	// +kubebuilder:validation:XValidation:rule="!(',' + self).matches(',(role|ip)=|,node[.]kubernetes[.]io/(master|worker)=[^,]')",message="must not set the labels role, ip, node.kubernetes.io/master and node.kubernetes.io/worker, which are the operator's; remove them"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[-a-z0-9.]{254}/')",message="must not have a prefix of more than 253 characters"
	Labels string `json:"labels,omitempty"`

	// Port is accepted for old manifests and ignored: the kubelet listens on 10250.
	//
	// +kubebuilder:default=10250
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	Port int32 `json:"port,omitempty"`
}

// NetworkSetup has settings of kube-proxy.
type NetworkSetup struct {
	// Docker is accepted for old manifests and ignored.
	Docker DockerImage `json:"docker,omitzero"`

	// KubeProxy has settings of kube-proxy.
	KubeProxy KubeProxy `json:"kubeProxy,omitzero"`
}

// KubeProxy has settings of kube-proxy.
type KubeProxy struct {
	// ConntrackMaxPerCore is the size of the connection tracking table per core; 0 keeps the value of the kernel.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	ConntrackMaxPerCore int32 `json:"conntrackMaxPerCore,omitempty"`
}

// SSH lists the users who may log in to the nodes.
type SSH struct {
	// UserList has one operating system user per entry, at most 100.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	UserList []SSHUser `json:"userList,omitempty"`
}

// SSHUser is an operating system user on every node, member of the group sudo.
type SSHUser struct {
	// Name is the user's name: at most 32 letters, digits, '.', '_' and '-', the first a letter or '_'; not root or another user
	// of the operating system.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9._-]*$')",message="must be a user name, letters, digits, '.', '_' and '-' with a letter or '_' first, for example ada"
	// +kubebuilder:validation:XValidation:rule="self != 'root'",message="must not be root; log in as a user of your own and use sudo"
	// +kubebuilder:validation:XValidation:rule="!(self in ['core', 'giantswarm', 'daemon', 'bin', 'sys', 'sync', 'games', 'man', 'lp', 'mail', 'news', 'uucp', 'proxy', 'www-data', 'backup', 'list', 'irc', 'gnats', 'nobody', 'sshd', 'messagebus', 'polkitd', 'etcd', 'operator', 'adm', 'shutdown', 'halt']) && !self.startsWith('systemd-')",message="must not be a user of the operating system or of the operator; choose another name"
	Name string `json:"name"`

	// PublicKey is an OpenSSH public key on one line, as in a .pub file. If it is empty, the user can log in only
	// with a certificate.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh[.]com) [A-Za-z0-9+/]+={0,3}( [^[:cntrl:]]*)?[\\n]?$')",message="must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty"
	PublicKey string `json:"publicKey,omitempty"`
}
