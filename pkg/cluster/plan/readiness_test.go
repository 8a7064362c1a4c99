package plan

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// healthy returns healthy members of etcd on masters.
func healthy(s *state.Cluster, ids ...string) []etcd.Member {
	var all []etcd.Member
	for i, id := range ids {
		m := s.EtcdMaster(id)
		all = append(all, etcd.Member{ID: uint64(i + 1), Name: m.Name, PeerURL: m.PeerURL, Started: true, Healthy: true})
	}
	return all
}

// TestMasterIsReadyWithItsMember: the next master is not replaced before.
func TestMasterIsReadyWithItsMember(t *testing.T) {
	s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Masters(2).Obj()}
	n := state.Node{ID: "m0aaa", Role: key.RoleMaster}
	change := func(f func(*etcd.Member)) []etcd.Member {
		all := healthy(s, "m0aaa", "m1aaa")
		f(&all[0])
		return all
	}
	for name, test := range map[string]struct {
		members []etcd.Member
		want    string
	}{
		"unknown":       {nil, ""},
		"well":          {healthy(s, "m0aaa"), ""},
		"none":          {healthy(s, "m1aaa"), "it has no member of etcd yet"},
		"without vote":  {change(func(m *etcd.Member) { m.Learner = true }), "its member of etcd has no vote yet"},
		"does not talk": {change(func(m *etcd.Member) { m.Healthy = false }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.Etcd = etcd.State{Members: test.members}
			if got := memberTrouble(s, n); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := memberTrouble(s, state.Node{ID: "w", Role: key.RoleWorker}); got != "" {
				t.Errorf("a worker: %q", got)
			}
		})
	}
}

// TestMasterThatIsNeverAddedIsReported covers an operator that only creates machines, and a master that has to join
// others: the message says what is missing.
func TestMasterThatIsNeverAddedIsReported(t *testing.T) {
	joins := state.Node{ID: "m2", Role: key.RoleMaster}
	s := &state.Cluster{Config: &v1alpha1.KVMConfig{}, Founders: []string{"m1"}, Nodes: []state.Node{
		{ID: "m1", Role: key.RoleMaster, Deployment: &appsv1.Deployment{}}, joins,
	}}
	NewPlanner().readiness(s, &joins, false, nil)
	if want := "service.workload.connect"; joins.Ready || !strings.Contains(joins.Message, want) {
		t.Errorf("ready %t, and it waits because %q, want something with %q", joins.Ready, joins.Message, want)
	}
}

// TestReadinessOfANode: a node is Ready by its pod, its Node and its member of etcd. While the workload cluster is not
// reached, a node whose pod is Ready stays Ready.
func TestReadinessOfANode(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, o *Observed)
		ready  bool
		part   string
	}{
		"all is well":                        {func(*testing.T, *Observed) {}, true, ""},
		"its pod is not Ready":               {func(t *testing.T, o *Observed) { o.fall(t, "m0aaa") }, false, ""},
		"its Node is missing":                {func(_ *testing.T, o *Observed) { o.Workload.Nodes = nil }, false, ""},
		"its Node is not Ready":              {func(_ *testing.T, o *Observed) { o.Workload.Nodes[0].Status.Conditions[0].Status = "False" }, false, "NotReady"},
		"its member is missing":              {func(_ *testing.T, o *Observed) { o.Etcd.Members = o.Etcd.Members[1:] }, false, "no member of etcd"},
		"its member has no vote":             {func(_ *testing.T, o *Observed) { o.Etcd.Members[0].Learner = true }, false, "no vote"},
		"its member does not answer":         {func(_ *testing.T, o *Observed) { o.Etcd.Members[0].Healthy = false }, true, ""},
		"no member answers":                  {func(_ *testing.T, o *Observed) { o.Etcd.Members = nil }, true, ""},
		"the API does not answer":            {func(_ *testing.T, o *Observed) { o.Workload = state.Workload{Reason: "Timeout"} }, true, ""},
		"neither its pod nor the API answer": {func(t *testing.T, o *Observed) { o.Workload = state.Workload{Reason: "Timeout"}; o.fall(t, "m0aaa") }, false, ""},
		"the operator does not connect":      {func(_ *testing.T, o *Observed) { o.Connects, o.Workload.Nodes = false, nil }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, fixture.MakeCluster("ab1cd").Masters(3))
			test.change(t, &o)
			n := planner.Plan(o, now).Nodes[0]
			if n.Ready != test.ready || !strings.Contains(n.Message, test.part) || n.Ready != (n.Message == "") {
				t.Errorf("it is Ready: %t (%s), want %t", n.Ready, n.Message, test.ready)
			}
		})
	}
}

// TestWhatIsSaidOfTheAPI: only an attempt that has not ended yet is not a fault.
func TestWhatIsSaidOfTheAPI(t *testing.T) {
	for w, want := range map[*state.Workload]nodestep.API{
		{Connected: true}:              nodestep.APIConnected,
		{Reason: state.ReasonNoMaster}: nodestep.APIConnecting,
		{Reason: "Connecting"}:         nodestep.APIConnecting,
		{Reason: "Timeout"}:            nodestep.APIUnreachable,
		{}:                             nodestep.APIUnreachable,
	} {
		if got := api(*w); got != want {
			t.Errorf("%+v: %q, want %q", *w, got, want)
		}
	}
}

// TestNewestRequestOfANodeCounts: of several requests for one node the newest that concerns the operator decides what is
// said about the node.
func TestNewestRequestOfANodeCounts(t *testing.T) {
	const pod = "worker-w0aaa-x"
	signer, other := certificatesv1.KubeAPIServerClientKubeletSignerName, "example.org/other"
	at := func(age time.Duration, signer string, approved bool) certificatesv1.CertificateSigningRequest {
		r := certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		r.Spec.SignerName, r.Spec.Request = signer, request(t, "system:node:"+pod)
		if approved {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
		}
		return r
	}
	strange := certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: request(t, "jane"), SignerName: signer}}
	for name, test := range map[string]struct {
		requests []certificatesv1.CertificateSigningRequest
		want     joining.Verdict
	}{
		"there is none":                          {nil, ""},
		"one of a user":                          {[]certificatesv1.CertificateSigningRequest{strange}, ""},
		"one that was approved":                  {[]certificatesv1.CertificateSigningRequest{at(0, signer, true)}, joining.Approve},
		"one that must not be approved":          {[]certificatesv1.CertificateSigningRequest{at(0, signer, false)}, joining.Wait},
		"an older one was approved":              {[]certificatesv1.CertificateSigningRequest{at(0, signer, false), at(time.Hour, signer, true)}, joining.Wait},
		"the newest was approved":                {[]certificatesv1.CertificateSigningRequest{at(time.Hour, signer, false), at(0, signer, true)}, joining.Approve},
		"the newest is for another party":        {[]certificatesv1.CertificateSigningRequest{at(0, other, false), at(time.Hour, signer, true)}, joining.Approve},
		"the newest is listed before the others": {[]certificatesv1.CertificateSigningRequest{at(0, signer, true), at(time.Hour, signer, false)}, joining.Approve},
	} {
		s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Obj(), Now: now, Workload: state.Workload{Requests: test.requests}}
		var got joining.Verdict
		if d := answers(s)[pod]; d != nil {
			got = d.Verdict
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// request returns a request for a certificate.
func request(t *testing.T, commonName string) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: []string{"system:nodes"}}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
