package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// stored is a fake cache with one ConfigMap and at most one Secret.
// TestWhoHasRunLosesItsToken: a member that has run loses its founding token, even if the node keeps its boot data,
// because a rollout may be paused for long and a master that is no longer in the spec stays until its member is
// removed. If a disk is lost in the meantime, an empty member must not start with the old ID.
func TestWhoHasRunLosesItsToken(t *testing.T) {
	scenario, w := replaced(t)
	founding := scenario.snapshot(t, w).Masters()[1].BootData.Public
	if !strings.Contains(decode(t, founding), "TICKET=founding") {
		t.Fatal("a founder has no founding token")
	}
	scenario.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	w.Deployments["master-m1aaa"].Spec.Template.Annotations[key.AnnotationNodeHash] = "of before"
	for id, deployment := range map[string]*appsv1.Deployment{"m1aaa": w.Deployments["master-m1aaa"], "m2aaa": &w.Retired[0]} {
		for mark, want := range map[string]bool{"": false, "2": true} {
			deployment.Annotations[key.AnnotationEtcdMember] = mark
			w.BootData = map[string]plan.BootData{
				key.BootDataName(key.RoleMaster, "ab1cd", id): {Public: &corev1.ConfigMap{Data: map[string]string{nodepod.UserData: founding}}},
			}
			s := scenario.snapshot(t, w)
			if s.BootDataErr != nil {
				t.Fatal(s.BootDataErr)
			}
			text := bootDataOf(t, s, id)
			if (text != "") != want {
				t.Fatalf("with the mark %q the boot data of %s changes: %t, want %t", mark, id, text != "", want)
			}
			if want && !strings.Contains(text, `TICKET=\"`) {
				t.Errorf("%s has its token:\n%s", id, text)
			}
		}
		deployment.Annotations[key.AnnotationEtcdMember] = ""
	}
}

// bootDataOf returns the public half of the boot data of a master, or nothing if it is not written.
func bootDataOf(t *testing.T, s *state.Cluster, id string) string {
	t.Helper()
	if public := halfOf[*corev1.ConfigMap](t, s, id); public != nil {
		return decode(t, public.Data[nodepod.UserData])
	}
	return ""
}

// halfOf returns one half of the boot data of a master, a ConfigMap or a Secret, or nil if it is not written.
func halfOf[T client.Object](t *testing.T, s *state.Cluster, id string) (half T) {
	t.Helper()
	desired, err := build(t, s, "configmap")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range desired.Objects {
		if found, ok := o.(T); ok && o.GetName() == key.BootDataName(key.RoleMaster, "ab1cd", id) {
			return found
		}
	}
	return half
}

// TestCertificatesOfAMachineAreKnown: they are known as long as the machine runs with them. Certificates that were
// issued later do not count, nor does a new token.
func TestCertificatesOfAMachineAreKnown(t *testing.T) {
	scenario, w := replaced(t)
	s := scenario.snapshot(t, w)
	requests := state.CertificateRequests(s.Config, s.Settings)
	authority := requests[slices.IndexFunc(requests, func(r pki.Request) bool { return r.Name == pki.CA })]
	var err error
	if s.Certificates[pki.CA], err = (pki.Embedded{Clock: clock.RealClock{}}).Issue(authority, pki.KeyPair{}); err != nil {
		t.Fatal(err)
	}
	fresh := halfOf[*corev1.Secret](t, s, "m0aaa")
	if fresh.Annotations[key.AnnotationCertificatesEnd] == "" {
		t.Fatalf("boot data does not say when its certificates end: %v", fresh.Annotations)
	}
	scenario.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	w.Deployments["master-m0aaa"].Spec.Template.Annotations[key.AnnotationNodeHash] = "of before"
	fresh.Annotations[key.AnnotationCertificatesEnd] = "2026-12-01T00:00:00Z"
	for _, token := range []string{fresh.Annotations[key.AnnotationBootstrapToken], "of yesterday"} {
		fresh.Annotations[key.AnnotationBootstrapToken] = token
		w.BootData = map[string]plan.BootData{fresh.Name: {Private: fresh}}
		s := scenario.snapshot(t, w)
		if s.BootDataErr != nil {
			t.Fatal(s.BootDataErr)
		}
		if got := s.Nodes[0].CertificatesEnd.Format(time.DateOnly); got != "2026-12-01" {
			t.Errorf("with token %q the certificates of %s end on %s", token, s.Nodes[0].ID, got)
		}
		if written := halfOf[*corev1.Secret](t, s, "m0aaa"); (written != nil) != (token == "of yesterday") {
			t.Errorf("with token %q boot data is written: %t", token, written != nil)
		} else if written != nil && written.Annotations[key.AnnotationCertificatesEnd] != "2026-12-01T00:00:00Z" {
			t.Errorf("a new token makes it forget: %v", written.Annotations)
		}
	}
}
