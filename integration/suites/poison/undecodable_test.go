package poison_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// poisons are values that an older schema of KVMConfig accepts and Go does not, by field.
var poisons = map[string]struct{ path, value, says string }{
	"psize": {"spec.kvm.etcd.size", `"1e1.5"`, `spec.kvm.etcd.size: "1e1.5": quantities must match`},
	"pmax":  {"spec.cluster.scaling.max", "4294967296", "spec.cluster.scaling.max: 4294967296: is not a value of type int32"},
	"ptime": {"spec.drain.timeout", `"999999h999999h999999h"`, `spec.drain.timeout: "999999h999999h999999h": time: invalid duration`},
	"proll": {"spec.rollout.maxUnavailable", "4294967296", "spec.rollout.maxUnavailable: 4294967296: is not a value of type int32"},
	"pport": {"spec.cluster.etcd.port", "4294967296", "spec.cluster.etcd.port: 4294967296: is not a value of type int32"},
}

// TestAnOperatorStartsAmongObjectsThatCannotBeDecoded: an older schema accepted the objects, they exist when the
// operator starts, and the schema has been corrected since then. The operator reconciles all other objects. The
// poisoned ones report the reason once and are reconciled when they are corrected.
func TestAnOperatorStartsAmongObjectsThatCannotBeDecoded(t *testing.T) {
	restore, restoreReleases := loosen(t, kvmConfigs), loosen(t, releases)
	for id, p := range poisons {
		store(t, untyped(t, fixture.MakeCluster(id).Obj(), p.path, p.value))
	}
	store(t, untyped(t, fixture.MakeRelease("6.6.6", "1.35.4"), "spec.date", `"yesterday"`))
	restore()
	restoreReleases()
	good := made(t, fixture.MakeCluster("good").Workers(1))
	named := made(t, fixture.MakeCluster("named").Label(key.LabelReleaseVersion, "6.6.6"))

	operator := theLab.Run(t)
	awaitWorkedOn(t, good)
	later := made(t, fixture.MakeCluster("later"))
	awaitWorkedOn(t, later)
	for id, p := range poisons {
		config := fixture.MakeCluster(id).Obj()
		awaitSaid(t, config, "Ready", "False InvalidObject the KVMConfig cannot be read: "+p.says, "kubectl edit "+kvmConfigs+" "+id+" -n default")
		awaitSaid(t, config, "Stalled", "True InvalidObject", p.says)
		awaitEvents(t, id, p.says, 1)
	}
	awaitSaid(t, named, "VersionsResolved", "False ReleaseInvalid release: Release v6.6.6 cannot be read: spec.date: \"yesterday\": ", "kubectl edit "+releases+" v6.6.6")
	awaitEvents(t, "v6.6.6", `spec.date: "yesterday": `, 1)
	awaitMetric(t, "kvm_operator_undecodable_objects", len(poisons)+1)

	// They are not touched: the operator creates nothing for them and sends only the one patch.
	for id := range poisons {
		if theLab.Exists(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: id}}) {
			t.Errorf("the operator has made a namespace for %s", id)
		}
		if writes := operator.Requests.Of(id); len(writes) > 2 {
			t.Errorf("for %s the operator asked for %v, want a patch of the status and an event", id, writes)
		}
	}
	// Objects that no operator ever reconciled disappear when they are deleted.
	gone := fixture.MakeCluster("pport").Obj()
	theLab.Delete(t, asUntyped(t, gone))
	theLab.AwaitGone(t, asUntyped(t, gone))
	awaitMetric(t, "kvm_operator_undecodable_objects", len(poisons)+1-1) // the metric outlives the operator of this process
	// A later operator does not repeat these reports.
	operator.Stop()
	again := theLab.Run(t)
	awaitWorkedOn(t, made(t, fixture.MakeCluster("third")))
	for id := range poisons {
		if asked := again.Requests.Of(id); len(asked) != 0 {
			t.Errorf("for %s the next operator asked for %v", id, asked)
		}
	}
	// They are reconciled when they are corrected.
	corrected := fixture.MakeCluster("pmax").Obj()
	set(t, corrected, "spec.cluster.scaling.max", "5")
	awaitWorkedOn(t, corrected)
	release := fixture.MakeRelease("6.6.6", "1.35.4")
	set(t, release, "spec.date", `"2026-11-01T00:00:00Z"`)
	awaitSaid(t, named, "VersionsResolved", "True")
	awaitMetric(t, "kvm_operator_undecodable_objects", len(poisons)+1-3) // without those of pport, pmax and the Release
}

// TestAClusterWhoseObjectCannotBeDecodedAnyLongerStaysAsItIs: nothing of it is created, changed or deleted until the
// object is corrected.
func TestAClusterWhoseObjectCannotBeDecodedAnyLongerStaysAsItIs(t *testing.T) {
	theLab.Run(t)
	config, witness := made(t, fixture.MakeCluster("turns").Workers(1)), made(t, fixture.MakeCluster("witns"))
	awaitWorkedOn(t, config)
	awaitWorkedOn(t, witness)
	restore := loosen(t, kvmConfigs)
	const path, bad = "spec.rollout.maxUnavailable", "4294967296"
	set(t, config, path, bad)
	awaitSaid(t, config, "Ready", "False InvalidObject", path, "leaves the cluster as it is")
	awaitSaid(t, config, "NamespaceReady", "True")

	before := objectsOf(t, "turns")
	taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "turns", Name: "worker"}}
	theLab.Delete(t, taken)
	theLab.Delete(t, asUntyped(t, config))
	awaitSaid(t, config, "Ready", "does not delete it either")
	theLab.Delete(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "witns", Name: "worker"}})
	lab.Eventually(t, lab.Timeout, func() error {
		return theLab.Client.Get(context.Background(), client.ObjectKey{Namespace: "witns", Name: "worker"}, &corev1.Service{})
	})
	if theLab.Exists(t, taken) {
		t.Error("the operator has made a Service again, of a cluster that it cannot know")
	}
	if after := objectsOf(t, "turns"); after != strings.Replace(before, "Service worker\n", "", 1) {
		t.Errorf("the cluster changes:\n%s\nwas\n%s", after, before)
	}
	// The deletion continues when the object can be decoded. No controller manager runs here that would complete it.
	set(t, config, path, "1")
	lab.Eventually(t, lab.Timeout, func() error {
		master := &appsv1.Deployment{}
		err := theLab.Client.Get(context.Background(), client.ObjectKey{Namespace: "turns", Name: key.DeploymentName(key.RoleMaster, "m0aaa")}, master)
		if err == nil && master.DeletionTimestamp == nil {
			err = fmt.Errorf("the deletion of %s has not come to its master: %s", config.Name, conditionOf(t, config, "Ready"))
		}
		return err
	})
	restore()
}

// objectsOf lists the Services and Secrets of a cluster.
func objectsOf(t *testing.T, namespace string) string {
	t.Helper()
	var b strings.Builder
	var services corev1.ServiceList
	if err := theLab.Client.List(context.Background(), &services, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range services.Items {
		fmt.Fprintf(&b, "Service %s\n", s.Name)
	}
	var secrets corev1.SecretList
	if err := theLab.Client.List(context.Background(), &secrets, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if strings.HasPrefix(s.Name, namespace+"-") {
			fmt.Fprintf(&b, "Secret %s\n", s.Name)
		}
	}
	return b.String()
}

// awaitEvents waits until there is this number of events about the object.
func awaitEvents(t *testing.T, of, text string, want int) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		var list corev1.EventList
		if err := theLab.Client.List(context.Background(), &list); err != nil {
			return err
		}
		got := 0
		for _, e := range list.Items {
			if e.InvolvedObject.Name == of && e.Reason == "InvalidObject" && strings.Contains(e.Message, text) {
				got++
			}
		}
		if got != want {
			return fmt.Errorf("%d events are about %s, want %d", got, of, want)
		}
		return nil
	})
}

// awaitMetric waits until a metric has this number of series, one for each object.
func awaitMetric(t *testing.T, name string, want int) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		families, err := metrics.Registry.Gather()
		if err != nil {
			return err
		}
		got := 0
		for _, f := range families {
			if f.GetName() == name {
				got = len(f.GetMetric())
			}
		}
		if got != want {
			return fmt.Errorf("%s has %d series, want %d", name, got, want)
		}
		return nil
	})
}
