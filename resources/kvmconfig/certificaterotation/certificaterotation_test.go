package certificaterotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

var (
	now       = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	errSecret = errors.New("a Secret is malformed")
)

const year = 365 * 24 * time.Hour

// written records the Secrets that are written, as "name@version".
type written []string

func (w *written) Apply(_ context.Context, set apply.Set) error {
	for _, object := range set.Objects {
		generation := object.GetAnnotations()[key.AnnotationAuthorityGeneration]
		*w = append(*w, fmt.Sprintf("%s@%s generation %s", object.GetName(), object.GetResourceVersion(), generation))
	}
	return nil
}

func issuer(at time.Time) pki.Embedded {
	return pki.Embedded{Clock: clocktesting.NewFakePassiveClock(at)}
}

// settled returns a cluster in which every node runs with the current certificates.
func settled(t *testing.T) *state.Cluster {
	t.Helper()
	config := fixture.MakeCluster("ab1cd").Workers(1).Obj()
	// Certificates that are valid for days have their own test.
	requests := slices.DeleteFunc(state.CertificateRequests(config, state.Settings{ClusterDomain: "mc.local"}), func(r pki.Request) bool { return r.Term > 0 })
	complete, err := pkitest.Complete(nil, requests, issuer(now), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &state.Cluster{Config: config, Certificates: complete.Set, Adopted: map[string]bool{}, Nodes: state.NewNodes(config.Spec)}
	s.Validity = state.Validity{
		Requests: requests, Versions: map[string]string{}, Generations: map[string]int64{}, Renewals: pki.Renewals{Next: complete.Next},
	}
	for name := range complete.Set {
		s.Validity.Versions[name] = "7"
	}
	for i := range s.Nodes {
		s.Nodes[i].Deployment, s.Nodes[i].Ready = &appsv1.Deployment{}, true
	}
	return s
}

func request(s *state.Cluster) {
	s.Config.Spec.Certificates = &v1alpha1.Certificates{AuthorityGeneration: 3}
}

// advanced moves CAs of a cluster to their next phase, all if none is named, and renews the other pairs.
func advanced(t *testing.T, s *state.Cluster, names ...string) {
	t.Helper()
	if len(names) == 0 {
		names = pki.Authorities
	}
	for _, name := range names {
		pair, err := pki.Advance(s.Certificates[name], func() (pki.KeyPair, error) { return pki.Successor(name, s.Validity.Requests, issuer(now)) })
		if err != nil {
			t.Fatal(err)
		}
		s.Certificates[name], s.Validity.Generations[name] = pair, 3
	}
	renewed(t, s, now)
}

// renewed renews the pairs that are due.
func renewed(t *testing.T, s *state.Cluster, at time.Time) {
	t.Helper()
	complete, err := pkitest.Complete(s.Certificates, s.Validity.Requests, issuer(at), at, nil)
	if err != nil || complete.Failed != nil {
		t.Fatal(err, complete.Failed)
	}
	s.Certificates = complete.Set
}

// due says that the pair "api" could not be renewed.
func due(s *state.Cluster) {
	s.Validity.Renewals.Due = map[string]string{pki.API: "a third of its term or less is left"}
}

func adopt(s *state.Cluster) {
	s.Validity.Requests = slices.Clone(s.Validity.Requests)
	for i := range s.Validity.Requests {
		s.Validity.Requests[i].Keep = true
	}
	for name := range s.Certificates {
		s.Adopted[name] = true
	}
}

// TestWhenCAsAdvance: a phase begins only once every node runs with the phase before.
func TestWhenCAsAdvance(t *testing.T) {
	all := []string{"ab1cd-ca@7 generation 3", "ab1cd-etcd-ca@7 generation 3", "ab1cd-front-proxy-ca@7 generation 3"}
	// A CA in rotation already has its mark.
	unmarked := []string{"ab1cd-ca@7 generation ", "ab1cd-etcd-ca@7 generation ", "ab1cd-front-proxy-ca@7 generation "}
	for name, test := range map[string]struct {
		after  time.Duration
		change func(*testing.T, *state.Cluster)
		want   []string
		// says is the start of the condition, and message is part of its message.
		says, message string
	}{
		"at rest": {says: "Done", message: "no certificate is due before 2027-07-23"},
		"the user requests a rotation": {
			change: func(_ *testing.T, s *state.Cluster) { request(s) }, want: all, says: "RotatingCAs", message: "the next step of the CA rotation begins",
		},
		"the CAs have been rotated as requested": {
			change: func(_ *testing.T, s *state.Cluster) {
				request(s)
				for _, name := range pki.Authorities {
					s.Validity.Generations[name] = 3
				}
			}, says: "Done",
		},
		"one of them was not written": {
			change: func(t *testing.T, s *state.Cluster) {
				request(s)
				advanced(t, s, pki.CA, pki.FrontProxyCA)
			}, want: []string{unmarked[0], all[1], unmarked[2]}, says: "RotatingCAs",
			message: "ca (step 1 of 3: old and new CA are trusted), etcd-ca (rotation is about",
		},
		"a third of the term is left": {
			after: 7 * year, change: func(t *testing.T, s *state.Cluster) { renewed(t, s, now.Add(7*year)) }, want: unmarked, says: "RotatingCAs",
		},
		"every machine trusts the successor": {
			change: func(t *testing.T, s *state.Cluster) { advanced(t, s) }, want: unmarked, says: "RotatingCAs", message: "step 1 of 3",
		},
		"another request during a rotation": {
			change: func(t *testing.T, s *state.Cluster) {
				advanced(t, s)
				request(s)
				s.Config.Spec.Certificates.AuthorityGeneration = 4
			},
			want: unmarked, says: "RotatingCAs",
		},
		"a renewal fails during a rotation": {
			change: func(t *testing.T, s *state.Cluster) { advanced(t, s); due(s) }, want: unmarked, says: "RotatingCAs",
		},
		"a renewal fails when the successor signs": {
			change: func(t *testing.T, s *state.Cluster) { advanced(t, s); advanced(t, s); due(s) },
			says:   "RotatingCAs", message: "step 2 of 3: the new CA issues certificates), etcd-ca (step 2 of 3: the new CA issues certificates), front-proxy-ca (step 2 of 3: the new CA issues certificates): not all certificates could be renewed",
		},
		"a machine is outdated": {
			change: func(t *testing.T, s *state.Cluster) { advanced(t, s); s.Nodes[1].Hash = "new" },
			says:   "RotatingCAs", message: "worker w0aaa still has to be replaced",
		},
		"a machine is not Ready": {
			change: func(t *testing.T, s *state.Cluster) {
				advanced(t, s)
				s.Nodes[0].Ready, s.Nodes[0].Message = false, "it boots"
			},
			says: "RotatingCAs", message: "master m0aaa is not Ready: it boots",
		},
		"a machine is missing": {
			change: func(t *testing.T, s *state.Cluster) { advanced(t, s); s.Nodes[1].Deployment = nil },
			says:   "RotatingCAs", message: "worker w0aaa has no machine yet",
		},
		"the cluster does not answer": {
			change: func(t *testing.T, s *state.Cluster) {
				advanced(t, s)
				s.Workload.Reason, s.Workload.Message = "Refused", "connection refused"
			},
			says: "RotatingCAs", message: "the workload cluster does not answer: connection refused",
		},
		"certificates are being issued": {
			change: func(t *testing.T, s *state.Cluster) {
				advanced(t, s)
				s.CertificatesErr = errSecret
			},
			says: "RotatingCAs", message: "certificates are being issued",
		},
		"machines of removed nodes are there": {
			change: func(t *testing.T, s *state.Cluster) { advanced(t, s); s.Leaving = []corev1.Pod{{}} },
			says:   "RotatingCAs", message: "waits for machines of removed nodes",
		},
		"it has not been stored yet": {
			change: func(_ *testing.T, s *state.Cluster) { request(s); s.Validity.Versions = nil }, says: "Done",
		},
		"adopted CAs, and a request": {
			change: func(_ *testing.T, s *state.Cluster) { request(s); adopt(s) }, says: "CAAdopted", message: "the operator does not rotate ca, etcd-ca, front-proxy-ca",
		},
		"adopted certificates": {
			change: func(_ *testing.T, s *state.Cluster) { adopt(s); s.Validity.Renewals.Next = time.Time{} }, says: "Done", message: "no certificate is due before 2027-10-23",
		},
		"adopted certificates end": {
			after: year - 10*24*time.Hour, change: func(_ *testing.T, s *state.Cluster) { adopt(s) },
			says: "CertificateExpiring", message: `certificate "api" expires on 2027-11-22`,
		},
		"a machine's certificates end": {
			change: func(_ *testing.T, s *state.Cluster) { s.Nodes[0].CertificatesEnd = now.Add(29 * 24 * time.Hour) },
			says:   "MachineCertificatesExpiring", message: "the machine of master m0aaa runs with certificates that expire on 2026-12-21",
		},
		"a machine's certificates end later": {
			change: func(_ *testing.T, s *state.Cluster) { s.Nodes[0].CertificatesEnd = now.Add(40 * 24 * time.Hour) },
			says:   "Done", message: "no certificate is due before 2026-12-02",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := settled(t)
			if test.change != nil {
				test.change(t, s)
			}
			var w written
			s.Now = now.Add(test.after)
			outcome, err := New(&w, issuer(s.Now)).EnsureCreated(t.Context(), s)
			says, message := outcome.Reason, outcome.Message
			if err != nil {
				says, message = "error", err.Error()
			}
			if p, ok := problem.As(err); ok {
				says = p.Reason
			}
			if diff := cmp.Diff(test.want, []string(w)); diff != "" || says != test.says || !strings.Contains(message, test.message) {
				t.Errorf("it says %s: %s, want %s: %s; Secrets (-want +got):\n%s", says, message, test.says, test.message, diff)
			}
			if says == "Done" && outcome.After <= 0 {
				t.Error("it does not come back by itself when a certificate is due")
			}
		})
	}
}
