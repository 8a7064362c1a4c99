package apply_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	controller "github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

// TestCreatesOnceAndThenAsksNothing: one request creates an object; after that, and after a restart, no request is
// sent.
func TestCreatesOnceAndThenAsksNothing(t *testing.T) {
	b := newBench(t)
	wanted := set(b.configMap("a", map[string]string{"k": "v"}))
	equal(t, "requests to create", []string{"POST"}, b.apply(wanted))
	equal(t, "requests of the next pass", []string(nil), b.apply(wanted))
	b.restart()
	equal(t, "requests after a restart", []string(nil), b.apply(wanted))
	made := now(t, b.configMap("a", nil))
	equal(t, "data", map[string]string{"k": "v"}, made.Data)
	equal(t, "owner", b.owner().String(), made.Annotations[ownership.Annotation])
}

// TestWantedObjectsAreNotChanged: the engine works on copies.
func TestWantedObjectsAreNotChanged(t *testing.T) {
	b := newBench(t)
	wanted := b.configMap("a", map[string]string{"k": "v"})
	before := wanted.DeepCopy()
	b.apply(set(wanted))
	equal(t, "the object passed in", before, wanted)
}

// TestEveryObjectOfAClusterConverges covers all objects of a KVMConfig: what the API server adds to objects, mainly
// defaults, does not make the engine write again, neither now nor after a restart.
func TestEveryObjectOfAClusterConverges(t *testing.T) {
	config := fixture.MakeCluster("conv1").Masters(3).Workers(2).Release("20.0.0", "4.0.0").EtcdOnVolume("1Gi").HostVolume(0, "data", "/data").Obj()
	settings := state.Settings{
		Guest:       cloudconfig.Settings{RegistryDomain: "registry.k8s.io", BinaryBaseURL: "https://dl.k8s.io"},
		RunnerImage: "runner:1", ClusterDomain: "cluster.local", FlatcarChannel: "stable", ClusterRole: "role", PSPClusterRole: "psp",
		IngressClass: "nginx", PodCIDRs: []string{"10.244.0.0/16"},
	}
	rendered, err := controller.Render(t.Context(), settings, config, controller.Inputs{
		Release: fixture.MakeRelease("20.0.0", "1.35.4"), Volumes: []corev1.PersistentVolume{*fixture.MakeVolume("pv1", "data")},
	})
	do(t, err)
	b := newBench(t)
	pass := func(handlers ...string) []string {
		asked.take()
		for _, r := range rendered {
			if len(handlers) == 0 || r.Handler == handlers[0] {
				createOnly := r.Handler == "certificates" || r.Handler == "randomkey"
				owner := key.OwnerKVMConfig(config, r.Handler)
				do(t, b.try(apply.Set{Owner: owner, Objects: r.Objects, CreateOnly: createOnly, Kinds: []client.Object{&corev1.ConfigMap{}}}))
			}
		}
		return asked.take()
	}
	pass("namespace")
	created := 0
	for _, request := range pass() {
		if !strings.HasPrefix(request, "POST ") {
			t.Errorf("creating takes %s", request)
		}
		created++
	}
	equal(t, "requests of the next pass", []string(nil), pass())
	b.restart()
	equal(t, "requests after a restart", []string(nil), pass())
	t.Logf("%d objects", created+1)
	if created < 50 {
		t.Errorf("only %d objects were made", created)
	}
}

// TestChangesTakeOneRequest, except the first change of an object, which also moves the posted fields.
func TestChangesTakeOneRequest(t *testing.T) {
	b := newBench(t)
	b.apply(set(b.configMap("a", map[string]string{"k": "1"})))
	equal(t, "requests of the first change", []string{"GET", "PATCH", "PATCH"}, b.apply(set(b.configMap("a", map[string]string{"k": "2"}))))
	equal(t, "requests of the second change", []string{"PATCH"}, b.apply(set(b.configMap("a", map[string]string{"k": "3"}))))
	b.restart()
	equal(t, "requests of a change after a restart", []string{"PATCH"}, b.apply(set(b.configMap("a", map[string]string{"k": "4"}))))
	equal(t, "data", map[string]string{"k": "4"}, now(t, b.configMap("a", nil)).Data)
}

// TestForeignListAdditionsAreAppliedOverOnce and no more: an admission webhook that adds a variable to
// every container must not make the operator write endlessly.
func TestForeignListAdditionsAreAppliedOverOnce(t *testing.T) {
	b := newBench(t)
	d := b.deployment("a", "image:1")
	b.apply(set(d))
	patch := `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"PROXY","value":"p"}]}]}}}}`
	do(t, direct.Patch(t.Context(), now(t, d), client.RawPatch("application/apply-patch+yaml", []byte(patch)), client.FieldOwner("webhook"), client.ForceOwnership))
	seen(t, d)
	if got := b.apply(set(d)); len(got) == 0 {
		t.Error("the addition is not noticed")
	}
	equal(t, "requests of the next pass", []string(nil), b.apply(set(d)))
	want := []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "PROXY", Value: "p"}}
	equal(t, "variables", want, now(t, d).Spec.Template.Spec.Containers[0].Env)
}

// TestObjectsOfNoInterestAreNotRead: the engine learns what exists from the cache, which holds only labeled objects.
func TestObjectsOfNoInterestAreNotRead(t *testing.T) {
	b := newBench(t)
	do(t, direct.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "other"}}))
	equal(t, "requests", []string{"POST"}, b.apply(apply.Set{Objects: []client.Object{b.configMap("a", nil)}, Kinds: []client.Object{&corev1.ConfigMap{}}}))
}
