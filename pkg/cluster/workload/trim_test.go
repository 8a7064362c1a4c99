package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	at      = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	later   = metav1.NewTime(at.Add(time.Minute))
	foreign = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate}}
)

func TestTrim(t *testing.T) {
	request := func(signer string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", ResourceVersion: "7", ManagedFields: foreign, Labels: map[string]string{"a": "b"}},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: []byte("pem"), Username: "me"},
			Status:     certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("pem")},
		}
	}
	kubelet := request(certificatesv1.KubeletServingSignerName)
	kubelet.ManagedFields = nil
	long, short := request(certificatesv1.KubeletServingSignerName), kubelet.DeepCopy()
	long.Spec.Request, short.Spec.Request = make([]byte, 1<<20), nil
	for name, c := range map[string]struct{ object, want any }{
		"a Node keeps what decisions are made of": {
			object: &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name: "n", UID: "u", ResourceVersion: "7", Generation: 3, ManagedFields: foreign, DeletionTimestamp: &at,
					Labels: map[string]string{"a": "b"},
					Annotations: map[string]string{
						"giantswarm.io/node-not-ready-tick": "1", "kvm-operator.giantswarm.io/x": "y",
						"notgiantswarm.io/x": "y", "flannel.alpha.coreos.com/public-ip": "10.0.0.1", "plain": "x",
					},
				},
				Spec: corev1.NodeSpec{
					PodCIDR: "10.2.0.0/24", PodCIDRs: []string{"10.2.0.0/24"}, ProviderID: "p", Unschedulable: true, Taints: []corev1.Taint{{Key: "t"}},
				},
				Status: corev1.NodeStatus{
					Capacity:   corev1.ResourceList{"cpu": resource.MustParse("1")},
					Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "r", Message: "m", LastHeartbeatTime: later, LastTransitionTime: at}},
					Addresses:  []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}},
					NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.35.4", MachineID: "x"},
					Images:     []corev1.ContainerImage{{Names: []string{"i"}}},
				},
			},
			want: &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name: "n", UID: "u", ResourceVersion: "7", DeletionTimestamp: &at, Labels: map[string]string{"a": "b"},
					Annotations: map[string]string{"giantswarm.io/node-not-ready-tick": "1", "kvm-operator.giantswarm.io/x": "y"},
				},
				Spec: corev1.NodeSpec{
					PodCIDR: "10.2.0.0/24", PodCIDRs: []string{"10.2.0.0/24"}, Unschedulable: true, Taints: []corev1.Taint{{Key: "t"}},
				},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "r", Message: "m", LastTransitionTime: at}},
					Addresses:  []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}},
					NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.35.4"},
				},
			},
		},
		"a kubelet's request stays whole": {object: request(certificatesv1.KubeletServingSignerName), want: kubelet},
		"one that is too long is dropped": {object: long, want: short},
		"of other requests only the name and the signer stay": {
			object: request("example.com/x"),
			want: &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", ResourceVersion: "7"},
				Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/x"},
			},
		},
		"of field managers the operator's name stays": {
			object: &corev1.ConfigMap{
				Data: map[string]string{"a": "b"},
				ObjectMeta: metav1.ObjectMeta{ManagedFields: append([]metav1.ManagedFieldsEntry{
					{Manager: "kvm-operator", Operation: "Apply", FieldsV1: &metav1.FieldsV1{}}, {Manager: "kvm-operator", Operation: "Apply", Subresource: "status"},
				}, foreign...)},
			},
			want: &corev1.ConfigMap{
				Data:       map[string]string{"a": "b"},
				ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kvm-operator", Operation: "Apply"}}},
			},
		},
		"a tombstone is passed on": {object: cache.DeletedFinalStateUnknown{Key: "x"}, want: cache.DeletedFinalStateUnknown{Key: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trim(c.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("trimmed (-want +got):\n%s", diff)
			}
			again, err := trim(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, again); diff != "" {
				t.Errorf("client-go may trim twice; the second time (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatters(t *testing.T) {
	node := func(version string, change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True", LastTransitionTime: at}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	request := func(version, signer string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r", ResourceVersion: version}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer},
		}
	}
	for name, c := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a Node comes or goes":                   {after: node("1"), want: true},
		"a Node is resynced":                     {before: node("1"), after: node("1")},
		"a Node's version alone":                 {before: node("1"), after: node("2")},
		"a Node is cordoned":                     {before: node("1"), after: node("2", func(n *corev1.Node) { n.Spec.Unschedulable = true }), want: true},
		"a Node's condition":                     {before: node("1"), after: node("2", func(n *corev1.Node) { n.Status.Conditions[0].Status = "False" }), want: true},
		"a kubelet's request comes or goes":      {after: request("1", certificatesv1.KubeAPIServerClientKubeletSignerName), want: true},
		"another client's request comes or goes": {after: request("1", "example.com/x")},
		"another client's request changes":       {before: request("1", "example.com/x"), after: request("2", "example.com/x")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := matters(c.before, c.after); got != c.want {
				t.Errorf("matters = %t, want %t", got, c.want)
			}
		})
	}
}
