// Package key is the one place for names, labels, annotations, ports and the calculation of sizes and indexes.
// Everything in it is pure.
package key

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// Labels that the original set on its objects; other software selects by them.
const (
	LabelApp            = "app"
	LabelCluster        = "cluster"
	LabelClusterID      = "cluster-id"
	LabelCustomer       = "customer"
	LabelCustomerID     = "customer-id"
	LabelNode           = "node"
	LabelMountTag       = "mount-tag"
	LabelCertificate    = "giantswarm.io/certificate"
	LabelGSCluster      = "giantswarm.io/cluster"
	LabelGSClusterID    = "giantswarm.io/cluster-id"
	LabelGSCustomerID   = "giantswarm.io/customer-id"
	LabelManagedBy      = "giantswarm.io/managed-by"
	LabelOrganization   = "giantswarm.io/organization"
	LabelRandomKey      = "giantswarm.io/randomkey"
	LabelVersionBundle  = "giantswarm.io/version-bundle"
	LabelPodWatcher     = "kvm-operator.giantswarm.io/pod-watcher"
	LabelVersion        = "kvm-operator.giantswarm.io/version"
	LabelReleaseVersion = "release.giantswarm.io/version"

	// LabelLegacyClusterID and LabelLegacyClusterKey are on encryption Secrets for the oldest readers.
	LabelLegacyClusterID  = "clusterID"
	LabelLegacyClusterKey = "clusterKey"
)

// Labels that Kubernetes defines.
const (
	LabelHostname            = "kubernetes.io/hostname"
	LabelServiceName         = "kubernetes.io/service-name"
	LabelSliceManagedBy      = "endpointslice.kubernetes.io/managed-by"
	LabelSkipMirror          = "endpointslice.kubernetes.io/skip-mirror"
	LabelPodSecurityEnforce  = "pod-security.kubernetes.io/enforce"
	LabelPodSecurityAudit    = "pod-security.kubernetes.io/audit"
	LabelPodSecurityWarn     = "pod-security.kubernetes.io/warn"
	PodSecurityPrivileged    = "privileged"
	PodSecurityBaseline      = "baseline"
	LabelManagementNodesRole = "role"
)

// Annotations.
const (
	// AnnotationBootstrapToken is on the Secret with a node's boot data: the public part of the bootstrap token in it.
	AnnotationBootstrapToken = "kvm-operator.giantswarm.io/bootstrap-token"
	// AnnotationCertificatesEnd is on the Secret with a master's boot data: when the first of the certificates in it
	// expires, by RFC 3339.
	AnnotationCertificatesEnd = "kvm-operator.giantswarm.io/certificates-end"
	// AnnotationAllowVersion is set by the user on a KVMConfig. It permits changes of versions that the rules forbid,
	// each by component and version: "kubernetes=1.34.2,etcd=3.6.5".
	AnnotationAllowVersion = "kvm-operator.giantswarm.io/allow-version"
	// AnnotationAdministratorsGeneration is set by the user on a KVMConfig. A new value revokes the rights of all
	// copies of the administrator's kubeconfig, and creates a new one.
	AnnotationAdministratorsGeneration = "kvm-operator.giantswarm.io/administrators-generation"
	// AnnotationVolumeFor is set by an administrator on a PersistentVolume with a mount tag: the namespaces, separated
	// by commas, whose KVMConfigs may use it.
	AnnotationVolumeFor = "kvm-operator.giantswarm.io/for-namespaces"
	// AnnotationDataOf is on a PersistentVolume that a cluster has claimed: the namespace of the KVMConfig whose data
	// it holds. An administrator removes it once the volume is wiped.
	AnnotationDataOf = "kvm-operator.giantswarm.io/data-of"
	// AnnotationAdministrators is on the Secret with the administrator's kubeconfig: the group that gives it its
	// rights.
	AnnotationAdministrators = "kvm-operator.giantswarm.io/administrators"
	// AnnotationJoining is on a node pod: its UID, the hash of the key for which a certificate was approved by
	// bootstrap token, when, and whether the Node has been Ready; see joining.Record.
	AnnotationJoining = "kvm-operator.giantswarm.io/joining"
	// AnnotationNodeHash is on the pod template of a node pod: the hash of everything that makes a running node
	// outdated, which is pod, boot data and guest image.
	AnnotationNodeHash = "kvm-operator.giantswarm.io/node-hash"

	AnnotationAPIEndpoint      = "kvm-operator.giantswarm.io/api-endpoint"
	AnnotationComponentVersion = "kvm-operator.giantswarm.io/component-version-"
	AnnotationPodVersionBundle = "kvm-operator.giantswarm.io/version-bundle"
	AnnotationService          = "endpoint.kvm.giantswarm.io/service"
	AnnotationDrained          = "endpoint.kvm.giantswarm.io/drained"
	AnnotationReleaseVersion   = "giantswarm.io/release-version"
	AnnotationVersionBundle    = "giantswarm.io/version-bundle-version"
	AnnotationEtcdDomain       = "giantswarm.io/etcd-domain"
	// AnnotationAuthorityGeneration is on the Secret of a CA that was rotated on request: the requested generation.
	AnnotationAuthorityGeneration = "kvm-operator.giantswarm.io/authority-generation"
	// AnnotationEtcdFounders is on a cluster's namespace: the ids of its etcd's founding masters.
	AnnotationEtcdFounders = "kvm-operator.giantswarm.io/etcd-founders"
	// AnnotationEtcdFounding is on a cluster's namespace as well, until a member has reported that etcd is founded:
	// until then the founding masters do not change.
	AnnotationEtcdFounding = "kvm-operator.giantswarm.io/etcd-founding"
	// AnnotationEtcdRestoring and AnnotationEtcdRestored are on a cluster's namespace: the snapshot that is replacing
	// etcd's data, and the one from which the data was restored, each "<file>/<generation>".
	AnnotationEtcdRestoring = "kvm-operator.giantswarm.io/etcd-restoring"
	AnnotationEtcdRestored  = "kvm-operator.giantswarm.io/etcd-restored"
	// AnnotationFoundingToken is on a cluster's namespace as well: the founding token with which masters received the
	// data of the latter.
	AnnotationFoundingToken = "kvm-operator.giantswarm.io/etcd-ticket"
	// AnnotationEtcdHalted is on a master's Deployment while its machine is down for a restore: the machine is released
	// without a drain.
	AnnotationEtcdHalted = "kvm-operator.giantswarm.io/etcd-halted"
	// AnnotationEtcdMember is on a master's Deployment once its etcd member has run: the member's id, followed by "@"
	// and the token of the restore if etcd was founded from one.
	AnnotationEtcdMember     = "kvm-operator.giantswarm.io/etcd-member"
	AnnotationPromCluster    = "giantswarm.io/prometheus-cluster"
	AnnotationPromPath       = "prometheus.io/path"
	AnnotationPromPort       = "prometheus.io/port"
	AnnotationPromScheme     = "prometheus.io/scheme"
	AnnotationPromScrape     = "prometheus.io/scrape"
	AnnotationSSLPassthrough = "nginx.ingress.kubernetes.io/ssl-passthrough"

	// AnnotationTerminateUnhealthy and its older spelling enable the replacement of unhealthy nodes, regardless of
	// their value.
	AnnotationTerminateUnhealthy      = "node.giantswarm.io/terminate-unhealthy"
	AnnotationTerminateUnhealthyAlpha = "alpha.node.giantswarm.io/terminate-unhealthy"

	// AnnotationPaused and AnnotationClusterAPIPaused stop every write while their value is "true".
	AnnotationPaused           = "operatorkit.giantswarm.io/paused"
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"
)

// Operator is the name of this program: field owner, value of LabelManagedBy and LabelPodWatcher.
const Operator = ownership.Operator

// Finalizers. The original's names are kept, so that objects can move between the two operators without getting stuck.
const (
	// FinalizerCluster is the cluster controller's.
	FinalizerCluster = "operatorkit.giantswarm.io/kvm-operator"
	// FinalizerDrainer is on every node pod from its creation: the drainer keeps the pod until its machine is drained
	// and down.
	FinalizerDrainer = "operatorkit.giantswarm.io/kvm-operator-drainer"
	// FinalizerDeleter is the deleter's.
	FinalizerDeleter = "operatorkit.giantswarm.io/kvm-operator-deleter"
	// FinalizerTerminator is that of the controller unhealthynodeterminator.
	FinalizerTerminator = "operatorkit.giantswarm.io/kvm-operator-unhealthy-nodes-terminator"
)

// ConditionNodeReady is the readiness gate of node pods: the workload cluster's Node is Ready.
const ConditionNodeReady = "kvm-operator.giantswarm.io/workload-cluster-node-ready"

// ConditionDrained is a condition of node pods that are being deleted: True once the machine has been released. Its
// reason and message say why, or what it waits for.
const ConditionDrained = "kvm-operator.giantswarm.io/drained"

// GateEtcdHost is the scheduling gate of masters whose etcd keeps its data on a host: a pod is placed only once it is
// known whether, and where, that data exists.
const GateEtcdHost = "kvm-operator.giantswarm.io/etcd-host"

// Roles of nodes.
const (
	RoleMaster = "master"
	RoleWorker = "worker"
)

// OfCluster reports whether one of the labels by which the original's objects name their cluster names the one with the
// given id.
func OfCluster(labels map[string]string, id string) bool {
	for _, label := range []string{LabelGSCluster, LabelCluster, LabelClusterID, LabelGSClusterID} {
		if labels[label] == id {
			return true
		}
	}
	return false
}

// Adopts implements apply.Adoption: an object without an owner becomes the cluster's if it has the labels of the
// original for it. A namespace needs the one label that only the original sets.
func Adopts(live, wanted metav1.Object, anchor bool) (adopted bool, handOver string) {
	cluster, labels := wanted.GetLabels()[LabelGSCluster], live.GetLabels()
	adopted = cluster != "" && (labels[LabelGSCluster] == cluster || !anchor && OfCluster(labels, cluster))
	return adopted, "hand it over with the label " + LabelGSCluster + "=" + cluster
}

// KindKVMConfig is the kind of the owner for a KVMConfig, with its API group.
const KindKVMConfig = "KVMConfig.provider.giantswarm.io"

// OwnerKVMConfig returns a KVMConfig as the owner of the objects of one handler.
func OwnerKVMConfig(config *v1alpha1.KVMConfig, handler string) ownership.Owner {
	return ownership.Owner{Kind: KindKVMConfig, Namespace: config.Namespace, Name: config.Name, UID: config.UID, Handler: handler}
}
