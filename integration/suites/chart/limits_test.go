package chart_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestLimitsAreKeptByTheAPIServer: the API server accepts what the values allow and rejects everything else with a
// sentence. Objects that were admitted before remain until their spec changes.
func TestLimitsAreKeptByTheAPIServer(t *testing.T) {
	l, err := lab.Start(t.Context(), managementcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	l.Client = administrator(t, l.Cluster)
	i := installation{l}
	large := fixture.MakeCluster("large").Workers(5).Obj()
	i.Create(t, large)
	i.limit(t, "limits.nodes=3", "limits.cpus=20", "limits.memory=8Gi", "limits.diskGB=40", "limits.drainTimeout=2h")

	small := func(change func(*v1alpha1.KVMConfigSpec)) *v1alpha1.KVMConfig {
		fits := func(s *v1alpha1.KVMConfigSpec) { s.KVM.Workers[0].Disk = 30 }
		return fixture.MakeCluster("small").Workers(1).With(fits).With(change).Obj()
	}
	drain := func(timeout time.Duration) func(*v1alpha1.KVMConfigSpec) {
		return func(s *v1alpha1.KVMConfigSpec) {
			s.Drain = &v1alpha1.Drain{Timeout: &metav1.Duration{Duration: timeout}}
		}
	}
	for name, test := range map[string]struct {
		config *v1alpha1.KVMConfig
		want   string // a part of the message; empty if it is admitted
	}{
		"a small cluster": {config: small(func(*v1alpha1.KVMConfigSpec) {})},
		"at all limits": {config: small(func(s *v1alpha1.KVMConfigSpec) {
			drain(2 * time.Hour)(s)
			w := &s.KVM.Workers[0]
			w.CPUs, w.Memory, w.Disk = 20-s.KVM.Masters[0].CPUs, "8Gi", 40
		})},
		"a node too many":   {fixture.MakeCluster("small").Workers(3).Obj(), "the cluster has 4 nodes; 3 are allowed here"},
		"CPUs too many":     {small(func(s *v1alpha1.KVMConfigSpec) { s.KVM.Workers[0].CPUs = 21 - s.KVM.Masters[0].CPUs }), "have 21 CPUs together; 20 are allowed here"},
		"too much memory":   {small(func(s *v1alpha1.KVMConfigSpec) { s.KVM.Masters[0].Memory = "9G" }), "more memory than 8Gi"},
		"a large disk":      {small(func(s *v1alpha1.KVMConfigSpec) { s.KVM.Workers[0].Disk = 40.5 }), "a disk of more than 40 GB"},
		"the default disk":  {small(func(s *v1alpha1.KVMConfigSpec) { s.KVM.Workers[0].Disk = 0 }), "without a size it has 50 GB"},
		"a large old disk":  {small(func(s *v1alpha1.KVMConfigSpec) { s.KVM.Workers[0].DockerVolumeSizeGB = 41 }), "a disk of more than 40 GB"},
		"an endless drain":  {small(drain(0)), "spec.drain.timeout: must be more than 0s"},
		"a drain for hours": {small(drain(2*time.Hour + time.Second)), "at most 2h"},
	} {
		t.Run(name, func(t *testing.T) {
			err := i.Client.Create(t.Context(), test.config, client.DryRunAll)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("err = %v, want it to say %q", err, test.want)
			}
		})
	}

	t.Run("what was admitted before", func(t *testing.T) {
		large.Finalizers = append(large.Finalizers, "example.org/held")
		if err := i.Client.Update(t.Context(), large); err != nil {
			t.Errorf("a finalizer is refused: %s", err)
		}
		large.Spec.KVM.Workers[0].CPUs++
		if err := i.Client.Update(t.Context(), large, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "6 nodes; 3 are allowed") {
			t.Errorf("err = %v, want that a change keeps to the limits", err)
		}
	})
}

var errNotInForce = errors.New("the limits are not in force yet")

// limit applies the policy that the chart renders from values, and waits until it is in force.
func (i installation) limit(t *testing.T, values ...string) {
	t.Helper()
	arguments := []string{"--show-only=templates/limits.yaml"}
	for _, value := range values {
		arguments = append(arguments, "--set-string="+value)
		if name, number, _ := strings.Cut(value, "="); strings.Trim(number, "0123456789") == "" {
			arguments[len(arguments)-1] = "--set=" + name + "=" + number
		}
	}
	for _, document := range strings.Split(render(t, arguments...), "\n---\n") {
		var object client.Object = &admissionv1.ValidatingAdmissionPolicy{}
		if strings.Contains(document, "kind: ValidatingAdmissionPolicyBinding\n") {
			object = &admissionv1.ValidatingAdmissionPolicyBinding{}
		}
		decode(t, []byte(document), object)
		i.Create(t, object)
	}
	lab.Eventually(t, lab.Timeout, func() error {
		if err := i.Client.Create(t.Context(), fixture.MakeCluster("probe").Workers(9).Obj(), client.DryRunAll); err == nil {
			return errNotInForce
		}
		return nil
	})
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: release + "-limits"}}
	i.Get(t, policy)
	if w := policy.Status.TypeChecking; w != nil && len(w.ExpressionWarnings) > 0 {
		t.Errorf("the API server warns of expressions: %+v", w.ExpressionWarnings)
	}
}
