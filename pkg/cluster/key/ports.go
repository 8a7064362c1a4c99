package key

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// Ports of a guest.
const (
	PortEtcdClient int32 = 2379
	PortEtcdPeer   int32 = 2380
	PortKubelet    int32 = 10250
	PortSSH        int32 = 22
	// PortVXLAN is the UDP port at which flannel receives the packets of other nodes' pods: the Linux kernel's default,
	// not IANA's.
	PortVXLAN int32 = 8472
	PortHTTP  int32 = 30010
	PortHTTPS int32 = 30011
)

// Port is a port of a Service; it is the same on the Service and in the guest. NodePort 0 lets the API server choose.
type Port struct {
	Name     string
	Port     int32
	NodePort int32
}

// MasterPorts are the ports of the Service "master".
func MasterPorts(c v1alpha1.Cluster) []Port {
	return []Port{{Name: "etcd", Port: PortEtcdClient}, {Name: "api", Port: c.Kubernetes.API.SecurePort}}
}

// PublishedService is the Service by which the API is reached from outside.
const PublishedService = "api"

// PublishedPorts are the ports of the Service "api".
func PublishedPorts(c v1alpha1.Cluster, a v1alpha1.Access) []Port {
	return []Port{{Name: "api", Port: c.Kubernetes.API.SecurePort, NodePort: a.NodePort}}
}

// MemberPorts are the ports of the Service of one etcd member.
func MemberPorts() []Port {
	return []Port{{Name: "etcd", Port: PortEtcdClient}, {Name: "etcd-peer", Port: PortEtcdPeer}}
}

// WorkerPorts are the ports of the Service "worker": those of the spec, otherwise http and https.
func WorkerPorts(k v1alpha1.KVM) []Port {
	if len(k.PortMappings) == 0 {
		return []Port{{Name: "http", Port: PortHTTP}, {Name: "https", Port: PortHTTPS}}
	}
	var ports []Port
	for _, m := range k.PortMappings {
		ports = append(ports, Port{Name: m.Name, Port: m.TargetPort, NodePort: m.NodePort})
	}
	return ports
}
