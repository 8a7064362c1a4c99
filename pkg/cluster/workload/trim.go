package workload

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// ownDomain is the domain in the prefix of annotations that the operator and related operators set.
const ownDomain = "giantswarm.io"

// trim drops what is never read, so that a thousand Nodes fit and objects differ only if something has to be done. Of
// the field managers it keeps only the operator's names, because the engine has to know whether a field was ever
// posted, but not which.
func trim(object any) (any, error) { //nolint:unparam // the signature of a cache transform
	switch o := object.(type) {
	case *corev1.Node:
		trimNode(o)
	case *certificatesv1.CertificateSigningRequest:
		trimRequest(o)
	case client.Object:
		trimManagers(o)
	}
	return object, nil // anything else is a tombstone, which is about to be removed
}

func trimManagers(object client.Object) {
	var managers []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == key.Operator && entry.Subresource == "" {
			managers = append(managers, metav1.ManagedFieldsEntry{Manager: entry.Manager, Operation: entry.Operation})
		}
	}
	object.SetManagedFields(managers)
}

// trimNode keeps what decisions need. It drops heartbeat times, because they change without any news.
func trimNode(node *corev1.Node) {
	conditions := node.Status.Conditions
	for i := range conditions {
		conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	node.ObjectMeta = trimMeta(node.ObjectMeta)
	node.Spec = corev1.NodeSpec{
		PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs, Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints,
	}
	node.Status = corev1.NodeStatus{
		Conditions: conditions, Addresses: node.Status.Addresses,
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: node.Status.NodeInfo.KubeletVersion},
	}
}

// trimRequest keeps only the existence of requests that do not come from kubelets, because a field selector has no
// "or". It drops a request that is too long to be approved.
func trimRequest(request *certificatesv1.CertificateSigningRequest) {
	request.ObjectMeta = trimMeta(request.ObjectMeta)
	if !ofKubelet(request) {
		request.Labels, request.Annotations = nil, nil
		request.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: request.Spec.SignerName}
		request.Status = certificatesv1.CertificateSigningRequestStatus{}
	}
	if len(request.Spec.Request) > joining.LongestRequest {
		request.Spec.Request = nil
	}
}

// ofKubelet reports whether a request is for the certificate of a kubelet.
func ofKubelet(request *certificatesv1.CertificateSigningRequest) bool {
	return request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName ||
		request.Spec.SignerName == certificatesv1.KubeletServingSignerName
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels, Annotations: ownAnnotations(m.Annotations),
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers,
	}
}

func ownAnnotations(all map[string]string) map[string]string {
	var own map[string]string
	for name, value := range all {
		prefix, _, _ := strings.Cut(name, "/")
		if prefix != ownDomain && !strings.HasSuffix(prefix, "."+ownDomain) {
			continue
		}
		if own == nil {
			own = map[string]string{}
		}
		own[name] = value
	}
	return own
}

// matters reports whether a reconcile could see the difference between two versions of a trimmed object.
func matters(before, after client.Object) bool {
	if request, ok := after.(*certificatesv1.CertificateSigningRequest); ok && !ofKubelet(request) {
		return false
	}
	if before == nil || before.GetResourceVersion() == after.GetResourceVersion() {
		return before == nil
	}
	copied := before.DeepCopyObject().(client.Object)
	copied.SetResourceVersion(after.GetResourceVersion())
	return !equality.Semantic.DeepEqual(copied, after)
}
