package v1alpha1_test

// What has the right form, and with which a cluster, or a part of it, could never work.
var rejectedUnworkable = map[string]rejection{
	"a DNS address that is the network's own": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 172.31.0.0/16}, dns: {ip: 172.31.0.0}}}}`,
		want:   `spec.cluster.kubernetes.dns.ip: Invalid value: must not be the network's own address, its first, which is the API's, or its last; leave it out to get the tenth address of the network`,
	},
	"a DNS address that is the API's": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 172.31.0.0/16}, dns: {ip: 172.31.0.1}}}}`,
		want:   `spec.cluster.kubernetes.dns.ip: Invalid value: must not be the network's own address, its first, which is the API's, or its last; leave it out to get the tenth address of the network`,
	},
	"a DNS address that is the last one": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 172.31.0.0/16}, dns: {ip: 172.31.255.255}}}}`,
		want:   `spec.cluster.kubernetes.dns.ip: Invalid value: must not be the network's own address, its first, which is the API's, or its last; leave it out to get the tenth address of the network`,
	},
	"a DNS address that is the last one of a small network": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 172.31.0.0/28}, dns: {ip: 172.31.0.15}}}}`,
		want:   `spec.cluster.kubernetes.dns.ip: Invalid value: must not be the network's own address, its first, which is the API's, or its last; leave it out to get the tenth address of the network`,
	},
	"a network of Services that is loopback": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 127.0.0.0/16}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "127.0.0.0/16": must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16`,
	},
	"a network of Services that is link-local": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 169.254.0.0/16}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "169.254.0.0/16": must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16`,
	},
	"a network of Services around what is link-local": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 169.240.0.0/12}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "169.240.0.0/12": must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16`,
	},
	"a network of Services of multicast": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 224.0.0.0/16}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "224.0.0.0/16": must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16`,
	},
	"a network of Services of no network": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 0.0.0.0/16}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "0.0.0.0/16": must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16`,
	},
	"a network of Services of reserved addresses": {
		change: `spec: {cluster: {kubernetes: {api: {clusterIPRange: 255.255.0.0/16}}}}`,
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "255.255.0.0/16": must not overlap 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no Service is reached; choose another network, for example 172.31.0.0/16`,
	},
	"a pod network that is loopback": {
		change: `spec: {cluster: {calico: {subnet: 127.0.0.0}}}`,
		want:   `spec.cluster.calico.subnet: Invalid value: "127.0.0.0": must not lie in 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no pod is reached; choose another network, for example 192.168.0.0`,
	},
	"a pod network that is link-local": {
		change: `spec: {cluster: {calico: {subnet: 169.254.0.0}}}`,
		want:   `spec.cluster.calico.subnet: Invalid value: "169.254.0.0": must not lie in 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no pod is reached; choose another network, for example 192.168.0.0`,
	},
	"a pod network around what is link-local": {
		change: `spec: {cluster: {calico: {subnet: 169.0.0.0, cidr: 8}}}`,
		want:   `spec.cluster.calico: Invalid value: must not contain 169.254.0.0/16 (link-local), where no pod is reached; choose another network, for example 192.168.0.0 with cidr 16`,
	},
	"a pod network around what is link-local, by another address of it": {
		change: `spec: {cluster: {calico: {subnet: 169.241.2.3, cidr: 12}}}`,
		want:   `spec.cluster.calico: Invalid value: must not contain 169.254.0.0/16 (link-local), where no pod is reached; choose another network, for example 192.168.0.0 with cidr 16`,
	},
	"a pod network of multicast": {
		change: `spec: {cluster: {calico: {subnet: 239.0.0.0}}}`,
		want:   `spec.cluster.calico.subnet: Invalid value: "239.0.0.0": must not lie in 0.0.0.0/8, 127.0.0.0/8 (loopback), 169.254.0.0/16 (link-local) and 224.0.0.0/3 (multicast, reserved), where no pod is reached; choose another network, for example 192.168.0.0`,
	},
	"an etcd domain that is an address": {
		change: `spec: {cluster: {etcd: {domain: 10.0.0.1}}}`,
		want:   `spec.cluster.etcd.domain: Invalid value: "10.0.0.1": must be a name, not an address, because it is the host of an Ingress; leave it out to get etcd.<base domain>`,
	},
	"a pod network without room for a second node": {
		change: `spec: {cluster: {calico: {subnet: 10.0.0.0, cidr: 30}}}`,
		want:   `spec.cluster.calico.cidr: Invalid value: must leave room for all nodes, of which each gets a part of the pod network: it has room for 1, and more are wanted; choose a larger pod network, or fewer nodes`,
	},
	"the label role": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "role=worker"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "role=worker": must not set the labels role, ip, node.kubernetes.io/master and node.kubernetes.io/worker, which are the operator's; remove them`,
	},
	"the label ip": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "a=b,ip=x"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "a=b,ip=x": must not set the labels role, ip, node.kubernetes.io/master and node.kubernetes.io/worker, which are the operator's; remove them`,
	},
	"a value of the label of a role": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "node.kubernetes.io/worker=x"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "node.kubernetes.io/worker=x": must not set the labels role, ip, node.kubernetes.io/master and node.kubernetes.io/worker, which are the operator's; remove them`,
	},
	"a label with an empty part in its prefix": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "a..b/c=d"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "a..b/c=d": must be labels as key=value, separated by commas and without spaces, for example example.org/rack=r1,disk=ssd`,
	},
	"a label with a prefix of 254 characters": {
		change: `spec: {cluster: {kubernetes: {kubelet: {labels: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/b=c"}}}}`,
		want:   `spec.cluster.kubernetes.kubelet.labels: Invalid value: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/b=c": must not have a prefix of more than 253 characters`,
	},
	"the user core": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: core}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].name: Invalid value: "core": must not be a user of the operating system or of the operator; choose another name`,
	},
	"the user giantswarm": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: giantswarm}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].name: Invalid value: "giantswarm": must not be a user of the operating system or of the operator; choose another name`,
	},
	"the user systemd-network": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: systemd-network}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].name: Invalid value: "systemd-network": must not be a user of the operating system or of the operator; choose another name`,
	},
	"a key that sshd no longer accepts": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: "ssh-dss AAAA a"}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].publicKey: Invalid value: "ssh-dss AAAA a": must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty`,
	},
	"a certificate instead of a key": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: "ssh-rsa-cert-v01@openssh.com AAAA a"}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].publicKey: Invalid value: "ssh-rsa-cert-v01@openssh.com AAAA a": must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty`,
	},
	"a key that is not base64": {
		change: `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: "ssh-rsa AA*A a"}]}}}}`,
		want:   `spec.cluster.kubernetes.ssh.userList[0].publicKey: Invalid value: "ssh-rsa AA*A a": must be one OpenSSH public key on one line, as in a .pub file, of type ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, -384 or -521, or one of a security key, or empty`,
	},
	"a control character in clientID": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: "a\x7fb", issuerURL: "https://dex.example.org"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.clientID: Invalid value: "a\x7fb": must not have control characters, which no configuration file of the API server can hold`,
	},
	"a control character in usernameClaim": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://dex.example.org", usernameClaim: "a\x7fb"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.usernameClaim: Invalid value: "a\x7fb": must not have control characters, which no configuration file of the API server can hold`,
	},
	"a control character in usernamePrefix": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://dex.example.org", usernamePrefix: "a\x7fb"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.usernamePrefix: Invalid value: "a\x7fb": must not have control characters, which no configuration file of the API server can hold`,
	},
	"a control character in groupsClaim": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://dex.example.org", groupsClaim: "a\x7fb"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.groupsClaim: Invalid value: "a\x7fb": must not have control characters, which no configuration file of the API server can hold`,
	},
	"a control character in groupsPrefix": {
		change: `spec: {cluster: {kubernetes: {api: {oidc: {clientID: a, issuerURL: "https://dex.example.org", groupsPrefix: "a\x7fb"}}}}}`,
		want:   `spec.cluster.kubernetes.api.oidc.groupsPrefix: Invalid value: "a\x7fb": must not have control characters, which no configuration file of the API server can hold`,
	},
	"a certificate name with a port": {
		change: `spec: {access: {certSANs: ["k8s.example.com:443"]}}`,
		want:   `spec.access.certSANs[0]: Invalid value: "k8s.example.com:443": must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org`,
	},
	"a certificate name that is a URL": {
		change: `spec: {access: {certSANs: ["https://x.example.org:6443/"]}}`,
		want:   `spec.access.certSANs[0]: Invalid value: "https://x.example.org:6443/": must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org`,
	},
	"a certificate name that is empty": {
		change: `spec: {access: {certSANs: [""]}}`,
		want:   `spec.access.certSANs[0]: Invalid value: "": must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org`,
	},
	"a certificate name that is a network": {
		change: `spec: {access: {certSANs: ["10.0.0.0/8"]}}`,
		want:   `spec.access.certSANs[0]: Invalid value: "10.0.0.0/8": must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org`,
	},
	"a certificate name beyond ASCII": {
		change: `spec: {access: {certSANs: ["bücher.example"]}}`,
		want:   `spec.access.certSANs[0]: Invalid value: "bücher.example": must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org`,
	},
	"a certificate name with a zone": {
		change: `spec: {access: {certSANs: ["fe80::1%eth0"]}}`,
		want:   `spec.access.certSANs[0]: Invalid value: "fe80::1%eth0": must be a DNS name, whose first label may be *, or an IP address, without scheme, port and prefix length, for example k8s.example.org`,
	},
	"a Kubernetes version with build metadata": {
		change: `spec: {versions: {kubernetes: 1.35.4+k3s1}}`,
		want:   `spec.versions.kubernetes: Invalid value: must not have build metadata (+...), because the version is the tag of images; leave it out`,
	},
	"an etcd version with build metadata": {
		change: `spec: {versions: {etcd: 3.6.5+x}}`,
		want:   `spec.versions.etcd: Invalid value: must not have build metadata (+...), because the version is the tag of an image; leave it out`,
	},
	"the node port of a port mapping": {
		change: `spec: {access: {type: NodePort, host: a, nodePort: 30100}, kvm: {portMappings: [{name: http, nodePort: 30100, targetPort: 80}]}}`,
		want:   `spec.access.nodePort: Invalid value: must not be the nodePort of one of spec.kvm.portMappings, which are http 30010 and https 30011 when left out; choose another port`,
	},
	"the node port of a port mapping that is left out": {
		change: `spec: {access: {type: NodePort, host: a, nodePort: 30011}}`,
		want:   `spec.access.nodePort: Invalid value: must not be the nodePort of one of spec.kvm.portMappings, which are http 30010 and https 30011 when left out; choose another port`,
	},
	"an image from half an address": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://[::1/k"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "https://[::1/k": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image with a broken escape": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://h/%zz"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "https://h/%zz": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image from no port": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://h:x/k"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "https://h:x/k": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image that is a query": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://h/?k"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "https://h/?k": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image from above the root": {
		change: `spec: {guestImage: {name: own, kernel: {url: "file:///../etc/x"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "file:///../etc/x": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image that is a directory": {
		change: `spec: {guestImage: {name: own, kernel: {url: "file:///dir/"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "file:///dir/": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image with a way up in disguise": {
		change: `spec: {guestImage: {name: own, kernel: {url: "file:///a/%2e%2e/b"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "file:///a/%2e%2e/b": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"an image with a space that does not break": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://h/a\u00a0b"}, initrd: {url: "https://example.org/i"}}}`,
		want:   `spec.guestImage.kernel.url: Invalid value: "https://h/a\u00a0b": must be an http, https or file URL of a file, for example https://images.example.org/vmlinuz`,
	},
	"a kernel argument with a control character of Unicode": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, kernelArguments: ["a\u0085b"]}}`,
		want:   `spec.guestImage.kernelArguments: Invalid value: must be arguments without line breaks and other control characters, none of them empty`,
	},
	"kernel arguments that Linux would cut off": {
		change: `spec: {guestImage: {name: own, kernel: {url: "https://example.org/k"}, initrd: {url: "https://example.org/i"}, kernelArguments: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]}}`,
		want:   `spec.guestImage.kernelArguments: Invalid value: must not be longer than 1536 characters together, because Linux reads 2047 of a command line and ignores the rest silently`,
	},
	"a master of a gigabyte": {
		change: `spec: {kvm: {masters: [{cpus: 2, memory: 1G}]}}`,
		want:   `spec.kvm.masters: Invalid value: must have 1500M of memory or more each, because the control plane does not start with less; 4G is recommended`,
	},
	"a disk of a gigabyte": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: 4G, disk: 1.4}]}}`,
		want:   `spec.kvm.workers: Invalid value: must have a disk of 2 GB or more each, because no kubelet starts with less; leave it out to get 50 and 5 GB`,
	},
	"a disk of a gigabyte by its other name": {
		change: `spec: {kvm: {workers: [{cpus: 2, memory: 4G, disk: 80, dockerVolumeSizeGB: 1}]}}`,
		want:   `spec.kvm.workers: Invalid value: must have a disk of 2 GB or more each, because no kubelet starts with less; leave it out to get 50 and 5 GB`,
	},
	"an image like a b for spec.addons.kubeProxy.image": {
		change: `spec: {addons: {kubeProxy: {image: "a b"}}}`,
		want:   `spec.addons.kubeProxy.image: Invalid value: "a b": must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0`,
	},
	"an image like A/b for spec.addons.coreDNS.image": {
		change: `spec: {addons: {coreDNS: {image: "A/b"}}}`,
		want:   `spec.addons.coreDNS.image: Invalid value: "A/b": must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0`,
	},
	"an image like https://a/b for spec.addons.cni.image": {
		change: `spec: {addons: {cni: {image: "https://a/b"}}}`,
		want:   `spec.addons.cni.image: Invalid value: "https://a/b": must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0`,
	},
	"an image like a/b: for spec.addons.cni.pluginImage": {
		change: `spec: {addons: {cni: {pluginImage: "a/b:"}}}`,
		want:   `spec.addons.cni.pluginImage: Invalid value: "a/b:": must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0`,
	},
	"an image like a@sha256:12 for spec.addons.kubeProxy.image": {
		change: `spec: {addons: {kubeProxy: {image: "a@sha256:12"}}}`,
		want:   `spec.addons.kubeProxy.image: Invalid value: "a@sha256:12": must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0`,
	},
	"snapshots at a b c d e": {
		change: `spec: {etcd: {snapshots: {schedule: "a b c d e", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "a b c d e": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots at 99 99 99 99 99": {
		change: `spec: {etcd: {snapshots: {schedule: "99 99 99 99 99", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "99 99 99 99 99": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots at TZ=UTC 0 1 1 1": {
		change: `spec: {etcd: {snapshots: {schedule: "TZ=UTC 0 1 1 1", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "TZ=UTC 0 1 1 1": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots at 0 5-1 * * *": {
		change: `spec: {etcd: {snapshots: {schedule: "0 5-1 * * *", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "0 5-1 * * *": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots at * * * * fri-mon": {
		change: `spec: {etcd: {snapshots: {schedule: "* * * * fri-mon", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "* * * * fri-mon": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots at */0 * * * *": {
		change: `spec: {etcd: {snapshots: {schedule: "*/0 * * * *", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "*/0 * * * *": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"snapshots at 0 0 * * 7": {
		change: `spec: {etcd: {snapshots: {schedule: "0 0 * * 7", volume: {hostPath: /a}}}}`,
		want:   `spec.etcd.snapshots.schedule: Invalid value: "0 0 * * 7": must be five fields of a CronJob like "0 */6 * * *", or @hourly, @daily, @weekly, @monthly`,
	},
	"a claim that cannot exist": {
		change: `spec: {etcd: {snapshots: {volume: {claimName: ../x y}}}}`,
		want:   `spec.etcd.snapshots.volume.claimName: Invalid value: "../x y": must be the name of a PersistentVolumeClaim, for example snapshots`,
	},
	"a server that is no host": {
		change: `spec: {etcd: {snapshots: {volume: {nfs: {server: 'a,b c', path: /a}}}}}`,
		want:   `spec.etcd.snapshots.volume.nfs.server: Invalid value: "a,b c": must be a host name or an IP address, for example nfs.example.org`,
	},
}
