// Package service is the handler of the Services: "master", "worker" and one for each master's etcd member.
package service

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler. Network policies and kubeconfigs have the addresses that the API server assigns.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "service", Kinds: []client.Object{&corev1.Service{}}, Build: build, AgainOnCreate: true}
}

func build(s *state.Cluster) (apply.Desired, error) {
	desired := apply.Desired{Objects: []client.Object{master(s), worker(s)}}
	if s.Published() {
		desired.Objects = append(desired.Objects, published(s))
	}
	for _, n := range s.EtcdMachines() {
		desired.Objects = append(desired.Objects, member(s, n))
	}
	return desired, nil
}

// master and worker have no selector because the handler of endpoints decides which pods are behind them.
func master(s *state.Cluster) *corev1.Service {
	service := service(s, key.RoleMaster, key.MasterPorts(s.Cluster()))
	service.Annotations = prometheus()
	service.Annotations[key.AnnotationEtcdDomain] = s.Cluster().Etcd.Domain + ":443"
	service.Annotations[key.AnnotationPromCluster] = s.ID()
	return service
}

func worker(s *state.Cluster) *corev1.Service {
	service := service(s, key.RoleWorker, key.WorkerPorts(s.Config.Spec.KVM))
	service.Annotations = prometheus()
	service.Spec.Type = corev1.ServiceTypeNodePort
	return service
}

// published is the API for clients outside of the management cluster. It is a separate Service because "master" also
// serves etcd, which must not be published.
func published(s *state.Cluster) *corev1.Service {
	service := service(s, key.RoleMaster, key.PublishedPorts(s.Cluster(), s.Access()))
	service.Name = key.PublishedService
	service.Spec.Type = corev1.ServiceType(s.Access().Type)
	return service
}

// member is the stable name of one etcd member. It resolves to the address of the machine itself because members only
// accept peers whose address belongs to a name in their certificate.
func member(s *state.Cluster, n state.Node) *corev1.Service {
	service := service(s, key.RoleMaster, key.MemberPorts())
	service.Name = key.DeploymentName(n.Role, n.ID)
	service.Labels[key.LabelNode] = n.ID
	service.Spec.ClusterIP = corev1.ClusterIPNone
	return service
}

func service(s *state.Cluster, role string, ports []key.Port) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: s.Meta(role, state.App(role), s.VersionBundle()),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}
	for _, p := range ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.Port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(p.Port), NodePort: p.NodePort,
		})
	}
	return service
}

func prometheus() map[string]string {
	return map[string]string{
		key.AnnotationPromPath: "/healthz", key.AnnotationPromPort: "30010",
		key.AnnotationPromScheme: "http", key.AnnotationPromScrape: "true",
	}
}
