package kubeconfig_test

import (
	"bytes"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/kubeconfig"
)

// TestTheKubeconfigChangesOnceItsGroupIsBound: a running cluster that does not answer keeps the kubeconfig that works.
// A kubeconfig whose group is bound is renewed even while the cluster does not answer.
func TestTheKubeconfigChangesOnceItsGroupIsBound(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	of := func(group string) *string { return &group }
	for name, test := range map[string]struct {
		stored  *string
		founded bool
		bound   string
		writes  bool
	}{
		"a new cluster":                                  {writes: true},
		"a cluster whose etcd has not begun":             {stored: of(""), writes: true},
		"an upgrade, the cluster does not answer":        {stored: of(""), founded: true},
		"an upgrade, the group is bound":                 {stored: of(""), founded: true, bound: addons.Administrators, writes: true},
		"a renewal, the cluster does not answer":         {stored: of(addons.Administrators), founded: true, writes: true},
		"another generation, the old group is bound":     {stored: of("another"), founded: true, bound: "another"},
		"the kubeconfig was deleted, it does not answer": {founded: true, writes: true},
	} {
		t.Run(name, func(t *testing.T) {
			config := state.WithDefaults(fixture.MakeCluster("ab1cd").Obj())
			complete, err := pkitest.Complete(nil, state.CertificateRequests(config, state.Settings{}), pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &state.Cluster{Config: config, Certificates: complete.Set, Nodes: state.NewNodes(config.Spec), KubeconfigOf: test.stored}
			s.Workload.Administrators = test.bound
			if test.founded {
				s.Nodes[0].Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationEtcdMember: "1"}}}
			}
			desired, err := kubeconfig.New().Build(s)
			if err != nil || (len(desired.Objects) == 1) != test.writes || (len(desired.Keep) == 1) == test.writes {
				t.Fatalf("err = %v, written: %d, kept: %d", err, len(desired.Objects), len(desired.Keep))
			}
			if !test.writes {
				return
			}
			secret := desired.Objects[0].(*corev1.Secret)
			if len(secret.Data["value"]) == 0 || !bytes.Equal(secret.Data["value"], secret.Data["kubeConfig"]) || secret.Annotations[key.AnnotationAdministrators] != addons.Administrators {
				t.Errorf("the Secret is %+v", secret)
			}
		})
	}
}
