package v1alpha1_test

// What is wrong with spec.cluster.kubernetes.
var rejectedKubernetes = map[string]rejection{
	"no API domain": {
		change: "spec: {cluster: {kubernetes: {api: {domain: <remove>}}}}",
		want:   "spec.cluster.kubernetes.api.domain: Required value",
	},
	"an API domain that does not begin with api.": {
		change: "spec: {cluster: {kubernetes: {api: {domain: kube.demo.example.org}}}}",
		want:   `spec.cluster.kubernetes.api.domain: Invalid value: "kube.demo.example.org": must be a lower-case DNS name that begins with "api.", for example api.ab1cd.k8s.example.org`,
	},
	"an API domain of nothing but api.": {
		change: "spec: {cluster: {kubernetes: {api: {domain: api.}}}}",
		want:   `spec.cluster.kubernetes.api.domain: Invalid value: "api.": must be a lower-case DNS name that begins with "api.", for example api.ab1cd.k8s.example.org`,
	},
	"an API domain with capitals": {
		change: "spec: {cluster: {kubernetes: {api: {domain: api.Demo.example.org}}}}",
		want:   `spec.cluster.kubernetes.api.domain: Invalid value: "api.Demo.example.org": must be a lower-case DNS name that begins with "api.", for example api.ab1cd.k8s.example.org`,
	},
	"an API domain that is a URL": {
		change: `spec: {cluster: {kubernetes: {api: {domain: "https://api.demo.example.org"}}}}`,
		want:   `spec.cluster.kubernetes.api.domain: Invalid value: "https://api.demo.example.org": must be a lower-case DNS name that begins with "api.", for example api.ab1cd.k8s.example.org`,
	},
	"an API domain of 251 characters": {
		change: "spec: {cluster: {kubernetes: {api: {domain: api.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a}}}}",
		want:   "spec.cluster.kubernetes.api.domain: Too long: may not be more than 250 bytes",
	},
	"an API port that is etcd's": {
		change: "spec: {cluster: {kubernetes: {api: {securePort: 2379}}}}",
		want:   "spec.cluster.kubernetes.api.securePort: Invalid value: 2379: must not be a port that a master uses otherwise: 22, 179, 2379-2381, 10248-10250, 10255-10259; 443 is recommended",
	},
	"an API port that is the kubelet's": {
		change: "spec: {cluster: {kubernetes: {api: {securePort: 10250}}}}",
		want:   "spec.cluster.kubernetes.api.securePort: Invalid value: 10250: must not be a port that a master uses otherwise: 22, 179, 2379-2381, 10248-10250, 10255-10259; 443 is recommended",
	},
	"an API port of 0": {
		change: "spec: {cluster: {kubernetes: {api: {securePort: 0}}}}",
		want:   "spec.cluster.kubernetes.api.securePort: Invalid value: 0: spec.cluster.kubernetes.api.securePort in body should be greater than or equal to 1",
	},
	"an API port of 65536": {
		change: "spec: {cluster: {kubernetes: {api: {securePort: 65536}}}}",
		want:   "spec.cluster.kubernetes.api.securePort: Invalid value: 65536: spec.cluster.kubernetes.api.securePort in body should be less than or equal to 65535",
	},
	"a network of Services without prefix length": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: 172.31.0.0}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "172.31.0.0": must be an IPv4 network with a prefix length of 12 to 28, for example 172.31.0.0/16`,
	},
	"a network of Services of IPv6": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: "fd00::/112"}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "fd00::/112": must be an IPv4 network with a prefix length of 12 to 28, for example 172.31.0.0/16`,
	},
	"a network of Services too small for a DNS service": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: 172.31.0.0/29}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "172.31.0.0/29": must be an IPv4 network with a prefix length of 12 to 28, for example 172.31.0.0/16`,
	},
	"a network of Services too large for Kubernetes": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: 10.0.0.0/8}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "10.0.0.0/8": must be an IPv4 network with a prefix length of 12 to 28, for example 172.31.0.0/16`,
	},
	"an empty network of Services": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: ""}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "": must be an IPv4 network with a prefix length of 12 to 28, for example 172.31.0.0/16`,
	},
	"an OIDC issuer without TLS": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "http://dex.example.org"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.issuerURL: Invalid value: "http://dex.example.org": must be an https URL without query and fragment, for example https://dex.example.org`,
	},
	"an OIDC issuer with a query": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://dex.example.org/?a=b"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.issuerURL: Invalid value: "https://dex.example.org/?a=b": must be an https URL without query and fragment, for example https://dex.example.org`,
	},
	"an OIDC issuer with a password": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://u:p@dex.example.org"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.issuerURL: Invalid value: "https://u:p@dex.example.org": must not hold a user name or password, which the API server does not accept`,
	},
	"the cluster's own issuer as OIDC issuer": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://api.demo.example.org"}}}}}`,
		want:   `spec.cluster.kubernetes.api: Invalid value: oidc.issuerURL must not be the API's own address, which is the issuer of the cluster's service accounts: name the provider of sign-on`,
	},
	"an OIDC issuer with a quote": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://dex.example.org/'x"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.issuerURL: Invalid value: "https://dex.example.org/'x": must be a URL without quotes and control characters, for example https://dex.example.org`,
	},
	"an empty OIDC client": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: "", issuerURL: "https://dex.example.org"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.clientID: Invalid value: "": spec.cluster.kubernetes.api.oidc.clientID in body should be at least 1 chars long`,
	},
	"OIDC without an issuer": {
		change: "spec: {cluster: {kubernetes: {api: {oidc: {clientID: a}}}}}",
		want:   "spec.cluster.kubernetes.api.oidc.issuerURL: Required value",
	},
	"a DNS address outside the network of Services": {
		change: "spec: {cluster: {kubernetes: {dns: {ip: 172.30.0.10}}}}",
		want:   "spec.cluster.kubernetes.dns.ip: Invalid value: must lie inside spec.cluster.kubernetes.api.clusterIPRange 172.31.0.0/16; leave it out to get the tenth address of the network",
	},
	"a DNS address outside a network of Services of one's own": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: 10.96.0.0/16}, dns: {ip: 172.31.0.10}}}}",
		want:   "spec.cluster.kubernetes.dns.ip: Invalid value: must lie inside spec.cluster.kubernetes.api.clusterIPRange 10.96.0.0/16; leave it out to get the tenth address of the network",
	},
	"a DNS address that is a name": {
		change: "spec: {cluster: {kubernetes: {dns: {ip: dns.example.org}}}}",
		want:   `spec.cluster.kubernetes.dns.ip: Invalid value: "dns.example.org": must be an IPv4 address, for example 172.31.0.10, or left out`,
	},
	"a DNS address of IPv6": {
		change: `spec: {cluster: {kubernetes: {dns: {ip: "fd00::a"}}}}`,
		want:   `spec.cluster.kubernetes.dns.ip: Invalid value: "fd00::a": must be an IPv4 address, for example 172.31.0.10, or left out`,
	},
	"a cluster domain with an underscore": {
		change: "spec: {cluster: {kubernetes: {domain: cluster_local}}}",
		want:   `spec.cluster.kubernetes.domain: Invalid value: "cluster_local": must be a lower-case DNS name, for example cluster.local`,
	},
	"an empty cluster domain": {
		change: `spec: {cluster: {kubernetes: {domain: ""}}}`,
		want:   `spec.cluster.kubernetes.domain: Invalid value: "": must be a lower-case DNS name, for example cluster.local`,
	},
	"a kubelet domain that is no DNS name": {
		change: `spec: {cluster: {kubernetes: {kubelet: {domain: "worker demo"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.domain: Invalid value: "worker demo": must be a lower-case DNS name, for example worker.ab1cd.k8s.example.org, or left out`,
	},
	"a label without value sign": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "disk"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "disk": must be labels as key=value, separated by commas and without spaces, for example example.org/rack=r1,disk=ssd`,
	},
	"labels separated by a comma and a space": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "disk=ssd, rack=r1"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "disk=ssd, rack=r1": must be labels as key=value, separated by commas and without spaces, for example example.org/rack=r1,disk=ssd`,
	},
	"a label value with a slash": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "path=/data"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "path=/data": must be labels as key=value, separated by commas and without spaces, for example example.org/rack=r1,disk=ssd`,
	},
	"the label of a role": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "disk=ssd,node-role.kubernetes.io/worker="}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "disk=ssd,node-role.kubernetes.io/worker=": must not set labels of kubernetes.io or k8s.io other than node.kubernetes.io/..., kubelet.kubernetes.io/... and topology.kubernetes.io/{region,zone}, because kubelets refuse to start with them; remove them`,
	},
	"a label of kubernetes.io itself": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "kubernetes.io/hostname=a"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "kubernetes.io/hostname=a": must not set labels of kubernetes.io or k8s.io other than node.kubernetes.io/..., kubelet.kubernetes.io/... and topology.kubernetes.io/{region,zone}, because kubelets refuse to start with them; remove them`,
	},
	"a label of k8s.io": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "x.k8s.io/a=b"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "x.k8s.io/a=b": must not set labels of kubernetes.io or k8s.io other than node.kubernetes.io/..., kubelet.kubernetes.io/... and topology.kubernetes.io/{region,zone}, because kubelets refuse to start with them; remove them`,
	},
	"a label that only looks like one of node.kubernetes.io": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "evilnode.kubernetes.io/a=b"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "evilnode.kubernetes.io/a=b": must not set labels of kubernetes.io or k8s.io other than node.kubernetes.io/..., kubelet.kubernetes.io/... and topology.kubernetes.io/{region,zone}, because kubelets refuse to start with them; remove them`,
	},
	"a label that only begins like a zone": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "topology.kubernetes.io/zones=b"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "topology.kubernetes.io/zones=b": must not set labels of kubernetes.io or k8s.io other than node.kubernetes.io/..., kubelet.kubernetes.io/... and topology.kubernetes.io/{region,zone}, because kubelets refuse to start with them; remove them`,
	},
	"a negative connection tracking table": {
		change: "spec: {cluster: {kubernetes: {networkSetup: {kubeProxy: {conntrackMaxPerCore: -1}}}}}",
		want:   "spec.cluster.kubernetes.networkSetup.kubeProxy.conntrackMaxPerCore: Invalid value: -1: spec.cluster.kubernetes.networkSetup.kubeProxy.conntrackMaxPerCore in body should be greater than or equal to 0",
	},
	"the user root": {
		change: "spec: {cluster: {kubernetes: {ssh: {userList: [{name: root}]}}}}",
		want:   `spec.cluster.kubernetes.ssh.userList[0].name: Invalid value: "root": must not be root; log in as a user of your own and use sudo`,
	},
	"a user name with a space": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: "ada l"}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].name: Invalid value: "ada l": must be a user name, letters, digits, '.', '_' and '-' with a letter or '_' first, for example ada`,
	},
	"an empty user name": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ""}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].name: Invalid value: "": must be a user name, letters, digits, '.', '_' and '-' with a letter or '_' first, for example ada`,
	},
	"a user name of 33 characters": {
		change: "spec: {cluster: {kubernetes: {ssh: {userList: [{name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]}}}}",
		want:   "spec.cluster.kubernetes.ssh.userList[0].name: Too long: may not be more than 32 bytes",
	},
	"one user twice": {
		change: "spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada}, {name: ada}]}}}}",
		want:   `spec.cluster.kubernetes.ssh.userList[1]: Duplicate value: {"name":"ada"}`,
	},
	"a key that is a path": {
		change: "spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: /home/ada/.ssh/id.pub}]}}}}",
		want:   `spec.cluster.kubernetes.ssh.userList[0].publicKey: Invalid value: "/home/ada/.ssh/id.pub": must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty`,
	},
	"two keys in one field": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: "ssh-rsa AAAA a\nssh-rsa BBBB b"}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].publicKey: Invalid value: "ssh-rsa AAAA a\nssh-rsa BBBB b": must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty`,
	},
	"a private key": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: "-----BEGIN OPENSSH PRIVATE KEY-----"}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].publicKey: Invalid value: "-----BEGIN OPENSSH PRIVATE KEY-----": must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty`,
	},
}
