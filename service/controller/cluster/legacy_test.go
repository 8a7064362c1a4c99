package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// TestClustersOfTheOriginal: the owners of the namespace and of the Deployments in it decide. Only if this operator has
// no object of the cluster, the condition that was written before decides.
func TestClustersOfTheOriginal(t *testing.T) {
	for name, c := range map[string]struct {
		// namespace is "", "theirs", "ours" or "other" (another KVMConfig's).
		namespace string
		machine   string
		said      bool
		deleting  bool
		aside     bool
		// says means that the condition is written.
		says bool
	}{
		"a new cluster":              {},
		"one of the original":        {namespace: "theirs", machine: "theirs", aside: true, says: true},
		"one that was said to be":    {namespace: "theirs", machine: "theirs", said: true, aside: true, says: true},
		"it is deleted":              {namespace: "theirs", machine: "theirs", deleting: true, aside: true, says: true},
		"it is deleted, and known":   {namespace: "theirs", machine: "theirs", said: true, deleting: true, aside: true, says: true},
		"its machines are gone":      {namespace: "theirs", said: true, deleting: true, aside: true},
		"its namespace is gone":      {said: true, deleting: true, aside: true},
		"its machines are stopped":   {namespace: "theirs", said: true, aside: true},
		"it was deleted elsewhere":   {said: true},
		"an empty namespace":         {namespace: "theirs"},
		"ours":                       {namespace: "ours", machine: "ours"},
		"ours, and said to be":       {namespace: "ours", machine: "ours", said: true},
		"ours, deleted, said to be":  {namespace: "ours", machine: "ours", said: true, deleting: true},
		"ours with a foreign one":    {namespace: "ours", machine: "theirs"},
		"another KVMConfig's":        {namespace: "other", machine: "theirs", said: true, deleting: true},
		"a Deployment of a stranger": {namespace: "theirs", machine: "stranger"},
	} {
		t.Run(name, func(t *testing.T) {
			config := fixture.MakeCluster("ab1cd").Obj()
			config.UID = "uid-ab1cd"
			if c.deleting {
				config.DeletionTimestamp, config.Finalizers = &metav1.Time{Time: now}, []string{key.FinalizerCluster, key.FinalizerDeleter}
			}
			if c.said {
				config.Status.Conditions = []metav1.Condition{{Type: ConditionReady, Status: metav1.ConditionFalse, Reason: state.ReasonLegacyMachines}}
			}
			r, live, patches := besideTheOriginal(t, config, c.namespace, c.machine)
			_, found, err := r.Get(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(config)})
			if err != nil || found == c.aside {
				t.Fatalf("worked on %v, error %v, want %v", found, err, !c.aside)
			}
			if c.namespace != "theirs" && !c.said && *live > 0 {
				t.Errorf("the API server was asked %d times about an ordinary cluster", *live)
			}
			if written := strings.Join(*patches, "\n"); !c.says {
				if written != "" {
					t.Errorf("written: %s", written)
				}
			} else if !strings.Contains(written, `"reason":"LegacyMachines"`) || !strings.Contains(written, "Deployment ab1cd/master-m0aaa") {
				t.Errorf("the condition %q does not name the Deployment", written)
			}
		})
	}
}

// TestAClusterOfTheOriginalIsToldOnce: the condition is not written again until it changes.
func TestAClusterOfTheOriginalIsToldOnce(t *testing.T) {
	config := fixture.MakeCluster("ab1cd").Obj()
	r, _, patches := besideTheOriginal(t, config, "theirs", "theirs")
	for range 2 {
		if err := r.tellOriginal(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		machine := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ab1cd", Name: "master-m0aaa"}}
		meta.SetStatusCondition(&config.Status.Conditions, metav1.Condition{
			Type: ConditionReady, Status: metav1.ConditionFalse, Reason: state.ReasonLegacyMachines, Message: state.LegacyMachines(machine).Error(),
			ObservedGeneration: config.Generation,
		})
	}
	if len(*patches) != 1 {
		t.Errorf("%d patches, want one", len(*patches))
	}
}

// besideTheOriginal returns a reconciler with a namespace and a master's Deployment of the given owners. It counts the
// requests to the API server and records the patches. The cache does not have the original's namespace.
func besideTheOriginal(t *testing.T, config *v1alpha1.KVMConfig, namespace, machine string) (r *Reconciler, live *int, patches *[]string) {
	t.Helper()
	live, patches = new(int), &[]string{}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ab1cd", Labels: map[string]string{"cluster": "ab1cd", "customer": "acme"}}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ab1cd", Name: "master-m0aaa", Labels: map[string]string{
		key.LabelApp: key.RoleMaster, key.LabelNode: "m0aaa", key.LabelManagedBy: key.Operator, key.LabelGSCluster: "ab1cd",
	}}}
	other := fixture.MakeCluster("other").Obj()
	owners := map[string]map[string]string{
		"ours": key.OwnerKVMConfig(config, "namespace").Annotations(), "other": key.OwnerKVMConfig(other, "namespace").Annotations(),
	}
	n.Annotations, d.Annotations = owners[namespace], owners[machine]
	if machine == "stranger" {
		delete(d.Labels, key.LabelNode)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cached, server := []client.Object{config}, []client.Object{config}
	if machine != "" {
		cached, server = append(cached, d), append(server, d)
	}
	if namespace != "" {
		server = append(server, n)
	}
	if namespace != "" && namespace != "theirs" {
		cached = append(cached, n)
	}
	patch := func(_ context.Context, _ client.Client, _ string, object client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
		data, err := p.Data(object)
		*patches = append(*patches, string(data))
		return err
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cached...).WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: patch}).Build()
	get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		*live++
		return c.Get(ctx, key, object, options...)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server...).WithInterceptorFuncs(interceptor.Funcs{Get: get}).Build()
	clock := testingclock.NewFakePassiveClock(now.Add(time.Hour))
	return &Reconciler{Client: cache, Live: api, Clock: clock, engine: apply.New(cache, api, clock)}, live, patches
}
