package certificaterequest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/certificaterequest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// log records the calls in order.
type log struct {
	did  []string
	fail error
}

func (l *log) Approve(_ context.Context, request *certificatesv1.CertificateSigningRequest, _, _ string) error {
	l.did = append(l.did, "approve "+request.Name)
	return nil
}

func (l *log) AnnotatePod(_ context.Context, pod *corev1.Pod, name, value string) error {
	l.did = append(l.did, "note "+pod.Name+" "+strings.TrimPrefix(name, "kvm-operator.giantswarm.io/")+" "+value)
	return l.fail
}

func (l *log) AnnotatePodAsSeen(_ context.Context, pod *corev1.Pod, _, value string) error {
	parts := strings.Fields(value)
	l.did = append(l.did, "note as seen "+pod.Name+" "+parts[0]+" "+strings.Join(parts[2:], " "))
	return l.fail
}

func request(t *testing.T, name, user string) certificatesv1.CertificateSigningRequest {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:pod", Organization: []string{"system:nodes"}},
	}, private)
	if err != nil {
		t.Fatal(err)
	}
	return certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: user, Groups: []string{joining.BootstrapGroup, "system:nodes"},
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		},
	}
}

// TestTheKeyIsNotedBeforeTheApproval: if the key cannot be recorded, nothing is approved. An operator that stops in
// between approves no second key.
func TestTheKeyIsNotedBeforeTheApproval(t *testing.T) {
	tokens := joining.TokensAt("seed", now)
	byToken := "system:bootstrap:" + tokens.Current(joining.Node{Role: "worker", ID: "w0aaa"}).ID
	first, second, renewal := request(t, "first", byToken), request(t, "second", byToken), request(t, "renewal", "system:node:pod")
	at := now.Format(time.RFC3339)
	for name, test := range map[string]struct {
		requests []certificatesv1.CertificateSigningRequest
		ready    bool
		fail     error
		want     []string
		after    time.Duration
	}{
		"one request":             {requests: []certificatesv1.CertificateSigningRequest{first}, want: []string{"note as seen pod 1 " + at, "approve first"}},
		"it cannot be noted":      {requests: []certificatesv1.CertificateSigningRequest{first}, fail: errors.New("x"), want: []string{"note as seen pod 1 " + at}},
		"a second one beside it":  {requests: []certificatesv1.CertificateSigningRequest{first, second}, want: []string{"note as seen pod 1 " + at, "approve first"}, after: joining.KeyPatience},
		"a renewal":               {requests: []certificatesv1.CertificateSigningRequest{renewal}, want: []string{"approve renewal"}},
		"none, the Node is Ready": {ready: true, want: []string{"note pod joining 1 - " + at + " joined"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Tokens: tokens, Now: now, Nodes: []state.Node{{ID: "w0aaa", Role: "worker", Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "1"}}}}}}
			s.Workload.Requests = test.requests
			if test.ready {
				s.Workload.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				}}}
			}
			l := &log{fail: test.fail}
			outcome, err := certificaterequest.New(l, func(*state.Cluster) certificaterequest.Approver { return l }).EnsureCreated(t.Context(), s)
			if diff := cmp.Diff(test.want, l.did); diff != "" || !errors.Is(err, test.fail) || outcome.After != test.after {
				t.Errorf("err = %v, again after %s (-want +got):\n%s", err, outcome.After, diff)
			}
		})
	}
}

// TestNothingIsNotedTwice: a cluster whose nodes have joined causes no requests.
func TestNothingIsNotedTwice(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "1"}}
	pod.Annotations = map[string]string{key.AnnotationJoining: joining.Record{At: now, Joined: true}.Text(&pod)}
	s := &state.Cluster{Tokens: joining.TokensAt("seed", now), Now: now, Nodes: []state.Node{{ID: "w0aaa", Role: "worker", Pods: []corev1.Pod{pod}}}}
	s.Workload.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}}
	l := &log{}
	if _, err := certificaterequest.New(l, func(*state.Cluster) certificaterequest.Approver { return l }).EnsureCreated(t.Context(), s); err != nil || len(l.did) > 0 {
		t.Errorf("err = %v, it did %q", err, l.did)
	}
}
