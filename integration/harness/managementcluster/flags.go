package managementcluster

import "fmt"

const (
	serviceNetwork = "10.96.0.0/16"
	podNetwork     = "10.244.0.0/16"
	etcdData       = "etcd"
)

// flags returns the command line of a component. Relative paths are relative to the state directory, where components
// run.
func (c *Cluster) flags(name Component) []string {
	switch name {
	case Etcd:
		return c.etcdFlags()
	case APIServer:
		return c.apiServerFlags()
	case ControllerManager:
		return c.controllerManagerFlags()
	case Scheduler:
		return c.schedulerFlags()
	default:
		return c.kwokFlags()
	}
}

// Clients must present a certificate: etcd rejects an API server that reaches another cluster's etcd through a reused
// port.
func (c *Cluster) etcdFlags() []string {
	peer := "http://" + c.ports.address(etcdPeer)
	return []string{
		"--name=management", "--data-dir=" + etcdData, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=" + c.ports.url(Etcd), "--advertise-client-urls=" + c.ports.url(Etcd),
		"--cert-file=pki/serving.crt", "--key-file=pki/serving.key",
		"--client-cert-auth", "--trusted-ca-file=pki/ca.crt",
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=management=" + peer,
	}
}

func (c *Cluster) apiServerFlags() []string {
	flags := []string{
		"--etcd-servers=" + c.ports.url(Etcd), "--etcd-cafile=pki/ca.crt",
		"--etcd-certfile=pki/etcd-client.crt", "--etcd-keyfile=pki/etcd-client.key",
		"--bind-address=" + c.ports.host, "--advertise-address=" + c.ports.host,
		fmt.Sprintf("--secure-port=%d", c.ports.number[APIServer]),
		"--tls-cert-file=pki/serving.crt", "--tls-private-key-file=pki/serving.key", "--client-ca-file=pki/ca.crt",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=pki/service-account.pub", "--service-account-signing-key-file=pki/service-account.key",
		"--service-cluster-ip-range=" + serviceNetwork,
		"--authorization-mode=Node,RBAC", "--allow-privileged=true",
		// No proxy for Services runs here, so aggregated APIs and webhooks are reached at the addresses of their pods.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=pki/ca.crt", "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=pki/front-proxy.crt", "--proxy-client-key-file=pki/front-proxy.key",
	}
	if c.options.Network == nil {
		// A loopback address cannot be an endpoint of the Service kubernetes.
		flags = append(flags, "--endpoint-reconciler-type=none")
	} else {
		flags = append(flags,
			"--kubelet-certificate-authority=pki/ca.crt", "--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate=pki/kubelet-client.crt", "--kubelet-client-key=pki/kubelet-client.key")
	}
	if c.options.Audit {
		flags = append(flags,
			"--audit-policy-file=audit-policy.yaml", "--audit-log-path="+auditLog, "--audit-log-maxsize=1000")
	}
	return flags
}

func (c *Cluster) controllerManagerFlags() []string {
	return append(c.clientFlags(ControllerManager),
		"--use-service-account-credentials=true", "--service-account-private-key-file=pki/service-account.key",
		"--root-ca-file=pki/ca.crt", "--cluster-signing-cert-file=pki/ca.crt", "--cluster-signing-key-file=pki/ca.key",
		"--allocate-node-cidrs=true", "--node-cidr-mask-size=24",
		"--cluster-cidr="+podNetwork, "--service-cluster-ip-range="+serviceNetwork)
}

func (c *Cluster) schedulerFlags() []string { return c.clientFlags(Scheduler) }

// clientFlags returns the flags that controller manager and scheduler share. With the default rate limits, a cluster
// would spend its first minutes waiting.
func (c *Cluster) clientFlags(name Component) []string {
	kubeconfig := kubeconfigName(string(name))
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + c.ports.host, fmt.Sprintf("--secure-port=%d", c.ports.number[name]),
		"--tls-cert-file=pki/serving.crt", "--tls-private-key-file=pki/serving.key",
		"--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
	}
}

func (c *Cluster) kwokFlags() []string {
	return []string{
		"--config=kwok.yaml", "--kubeconfig=" + kubeconfigName("kwok"),
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=fake",
		// Leases in place of status updates keep the nodes alive at the lowest cost.
		"--node-lease-duration-seconds=40",
		"--server-address=" + c.ports.address(Kwok),
		"--tls-cert-file=pki/serving.crt", "--tls-private-key-file=pki/serving.key",
	}
}
