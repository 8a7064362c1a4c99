package behaviour_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestCAsAreRotatedInThreePhases: etcd never loses quorum, no phase begins while a machine runs with the phase before
// the last one, and in the end no Secret of the cluster contains the old CAs.
func TestCAsAreRotatedInThreePhases(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rotat").Masters(3).Workers(2).Obj())
	before := secretOf(t, config, pki.CA)
	fleet, phases := follow(t, config), followPhases(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Certificates = &v1alpha1.Certificates{AuthorityGeneration: 1} })
	theLab.AwaitCondition(t, config, lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "RotatingCAs"})
	lab.Eventually(t, 2*lab.Timeout, func() error {
		if after := secretOf(t, config, pki.CA); bytes.Equal(after.Data["crt"], before.Data["crt"]) || !bytes.Equal(after.Data["ca"], after.Data["crt"]) {
			return fmt.Errorf("the CA is not rotated: %+v", theLab.Current(t, config).Status.Conditions)
		}
		return nil
	})
	theLab.AwaitReady(t, config)
	fleet.verdict(t)
	phases.verdict(t)
	var secrets corev1.SecretList
	if err := theLab.Client.List(t.Context(), &secrets, client.InNamespace(config.Namespace), client.MatchingLabels{key.LabelGSCluster: "rotat"}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		for name, data := range secret.Data {
			if bytes.Contains(data, bytes.TrimSpace(before.Data["crt"])) && secret.Labels[key.LabelCertificate] != pki.ServiceAccount {
				t.Errorf("key %s of Secret %s has the old CA", name, secret.Name)
			}
		}
	}
}

// TestRenewalReplacesMastersAndNoWorker: a key pair that is about to expire is renewed once by the same CA, and
// everything else stays.
func TestRenewalReplacesMastersAndNoWorker(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("renew").Masters(3).Workers(2).Obj())
	masters, workers := []string{"m0aaa", "m1aaa", "m2aaa"}, []string{"w0aaa", "w1aaa"}
	before := [][]types.UID{podUIDs(t, config, masters...), podUIDs(t, config, workers...)}
	kept := []*corev1.Secret{secretOf(t, config, pki.CA), secretOf(t, config, pki.API), secretOf(t, config, pki.ServiceAccount)}
	fleet := follow(t, config)
	ending := nineMonthsOld(t, config, pki.Scheduler)
	change(t, secretOf(t, config, pki.Scheduler), func(s *corev1.Secret) { s.Data["crt"], s.Data["key"] = ending.Certificate, ending.Key })
	lab.Eventually(t, lab.Timeout, func() error {
		cert, err := pki.ParseCertificate(secretOf(t, config, pki.Scheduler).Data["crt"])
		if err == nil && time.Until(cert.NotAfter) < 300*24*time.Hour {
			err = fmt.Errorf("the certificate ends on %s", cert.NotAfter)
		}
		return err
	})
	lab.Eventually(t, lab.Timeout, func() error {
		for i, uid := range podUIDs(t, config, masters...) {
			if uid == before[0][i] {
				return fmt.Errorf("the machine of master %s is the one of before", masters[i])
			}
		}
		return nil
	})
	theLab.AwaitReady(t, config)
	fleet.verdict(t)
	if diff := cmp.Diff(before[1], podUIDs(t, config, workers...)); diff != "" {
		t.Errorf("machines of workers were replaced (-before +after):\n%s", diff)
	}
	for _, secret := range kept {
		now := &corev1.Secret{}
		if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), now); err != nil || now.ResourceVersion != secret.ResourceVersion {
			t.Errorf("Secret %s was written, err %v", secret.Name, err)
		}
	}
}

// nineMonthsOld returns a key pair of the cluster as if it had been issued nine months ago.
func nineMonthsOld(t *testing.T, config *v1alpha1.KVMConfig, name string) pki.KeyPair {
	t.Helper()
	authority := secretOf(t, config, pki.CA)
	requests := state.CertificateRequests(state.WithDefaults(config), lab.Settings())
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(time.Now().AddDate(0, -9, 0))}
	pair, err := issuer.Issue(requests[slices.IndexFunc(requests, func(r pki.Request) bool { return r.Name == name })], pki.KeyPair{
		CA: authority.Data["ca"], Certificate: authority.Data["crt"], Key: authority.Data["key"],
	})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func secretOf(t *testing.T, config *v1alpha1.KVMConfig, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	object := client.ObjectKey{Namespace: config.Namespace, Name: key.SecretName(config.Spec.Cluster.ID, name)}
	if err := theLab.Client.Get(t.Context(), object, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// rotation follows the phases of a CA and the pods that were started in each phase. It compares revisions of etcd,
// because events of two watches do not arrive in the order in which they happened.
type rotation struct {
	mu   sync.Mutex
	last string
	// moved are the revisions at which the CA has moved to another phase, in order.
	moved []uint64
	pods  map[string]lifetime
}

// lifetime is the revisions between which a pod's containers could run; to is 0 while they can. A pod that has ended
// stays until its finalizer is removed.
type lifetime struct{ from, to uint64 }

func revision(object client.Object) uint64 {
	n, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err) // resource versions of Kubernetes are revisions of etcd
	}
	return n
}

func followPhases(t *testing.T, config *v1alpha1.KVMConfig) *rotation {
	t.Helper()
	pods, err := listPods(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &rotation{pods: map[string]lifetime{}, last: string(secretOf(t, config, pki.CA).Data["ca"])}
	for _, pod := range pods {
		s.pods[pod.Name] = lifetime{}
	}
	lab.Watch(t, theLab, &corev1.PodList{}, s.seePod, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)))
	lab.Watch(t, theLab, &corev1.SecretList{}, s.seeSecret, client.InNamespace(config.Namespace), client.MatchingLabels{
		key.LabelGSCluster: config.Spec.Cluster.ID, key.LabelCertificate: pki.CA,
	})
	return s
}

func (s *rotation) seePod(event watch.EventType, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	life, known := s.pods[pod.Name]
	if !known {
		life.from = revision(pod)
	}
	ended := event == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if ended && life.to == 0 {
		life.to = revision(pod)
	}
	s.pods[pod.Name] = life
}

func (s *rotation) seeSecret(_ watch.EventType, secret *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := string(secret.Data["ca"]); now != s.last {
		s.last = now
		s.moved = append(s.moved, revision(secret))
	}
}

// phase returns the phase of the CA at a revision.
func (s *rotation) phase(at uint64) int {
	return len(slices.DeleteFunc(slices.Clone(s.moved), func(moved uint64) bool { return moved > at }))
}

// verdict checks that every pod was started in the phase that ends when the CA moves on.
func (s *rotation) verdict(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for phase, moved := range s.moved {
		for name, life := range s.pods {
			existed := life.from < moved && (life.to == 0 || life.to > moved)
			if began := s.phase(life.from); existed && began != phase {
				t.Errorf("pod %s was begun in phase %d, and phase %d ends: it lived from revision %d to %d, and the CA moved on at %v",
					name, began, phase, life.from, life.to, s.moved)
			}
		}
	}
	if len(s.moved) != 3 {
		t.Errorf("the CA went through %d phases, want 3", len(s.moved))
	}
	for name, life := range s.pods {
		if began := s.phase(life.from); life.to == 0 && began != 3 {
			t.Errorf("pod %s was begun in phase %d, and nothing has replaced it since", name, began)
		}
	}
}
