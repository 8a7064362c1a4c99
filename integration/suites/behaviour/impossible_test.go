package behaviour_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// impossible is a valid KVMConfig that the management cluster cannot serve in its current state.
type impossible struct {
	config *v1alpha1.KVMConfig
	// world are the objects that exist before.
	world []client.Object
	// handler and condition identify the message to the user.
	handler, condition, reason, message string
	// makes are nodes that start nevertheless, and untouched are objects of others.
	makes     []string
	untouched []client.Object
	// fix is what the user does. It is nil when the KVMConfig can only be deleted.
	fix func(t *testing.T, config *v1alpha1.KVMConfig)
}

func impossibles() map[string]impossible {
	volume := func(id string) *fixture.Cluster { return makeCluster(id).Workers(2).HostVolume(0, id, "/data") }
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "imp7"}}
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "imp7", Name: "master"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	own := makeCluster("imp8").Obj()
	own.Namespace = "imp8"
	portTaken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "impq-port"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30085}},
	}}
	taken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "imp9-worker", Labels: map[string]string{key.LabelGSCluster: "imp9x"}}}
	bound := fixture.MakeVolume("imp6", "imp6")
	bound.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "elsewhere", Name: "data"}

	return map[string]impossible{
		"the Release does not exist": {
			config: makeCluster("imp1").Release("1.0.0", "4.0.0").Obj(), handler: "release", condition: "VersionsResolved", reason: "ReleaseNotFound",
			message: "Release v1.0.0 does not exist; create it, or remove the label release.giantswarm.io/version and set spec.versions",
			fix:     func(t *testing.T, _ *v1alpha1.KVMConfig) { t.Helper(); create(t, releaseOf("1.0.0")) },
		},
		"the Release lacks a component": {
			config: makeCluster("imp2").Release("2.0.0", "4.0.0").Obj(), handler: "release", condition: "VersionsResolved", reason: "ComponentMissing",
			message: `Release v2.0.0 has no component "etcd"`,
			world:   []client.Object{without(fixture.MakeRelease("2.0.0", "1.35.1"), "etcd")},
			fix: func(t *testing.T, c *v1alpha1.KVMConfig) {
				t.Helper()
				change(t, c, func(c *v1alpha1.KVMConfig) { c.Labels[key.LabelReleaseVersion] = "" })
			},
		},
		"the version is not supported": {
			config:  makeCluster("imp3").With(func(s *v1alpha1.KVMConfigSpec) { s.Versions = &v1alpha1.Versions{Kubernetes: "1.20.0"} }).Obj(),
			handler: "release", condition: "VersionsResolved", reason: "VersionUnsupported",
			message: "spec.versions names kubernetes 1.20.0; supported are 1.34 up to, not including, 1.37",
			fix: func(t *testing.T, c *v1alpha1.KVMConfig) {
				t.Helper()
				change(t, c, func(c *v1alpha1.KVMConfig) { c.Spec.Versions.Kubernetes = "1.35.4" })
			},
		},
		"no volume carries the tag": {
			config: volume("imp4").Obj(), handler: "pvc", condition: "InfrastructureReady", reason: "HostVolumeMissing",
			message: "worker w0aaa: no PersistentVolume carries the label mount-tag=imp4; create one or remove the host volume",
			makes:   []string{"m0aaa", "w1aaa"},
			fix:     func(t *testing.T, _ *v1alpha1.KVMConfig) { t.Helper(); create(t, fixture.MakeVolume("imp4", "imp4")) },
		},
		"two volumes carry the tag": {
			config: volume("imp5").Obj(), handler: "pvc", condition: "InfrastructureReady", reason: "HostVolumeAmbiguous",
			world:   []client.Object{fixture.MakeVolume("imp5-a", "imp5"), fixture.MakeVolume("imp5-b", "imp5")},
			message: "worker w0aaa: the PersistentVolumes imp5-a and imp5-b both carry the label mount-tag=imp5; exactly one may",
			makes:   []string{"m0aaa", "w1aaa"},
			fix: func(t *testing.T, _ *v1alpha1.KVMConfig) {
				t.Helper()
				theLab.Delete(t, fixture.MakeVolume("imp5-b", "imp5"))
			},
		},
		"the volume is claimed by another claim": {
			config: volume("imp6").Obj(), handler: "pvc", condition: "InfrastructureReady", reason: "HostVolumeClaimed", world: []client.Object{bound},
			message: "worker w0aaa: PersistentVolume imp6 with the label mount-tag=imp6 is claimed by elsewhere/data",
			makes:   []string{"m0aaa", "w1aaa"},
			fix: func(t *testing.T, _ *v1alpha1.KVMConfig) {
				t.Helper()
				change(t, bound, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })
			},
		},
		"the namespace belongs to another owner": {
			config: makeCluster("imp7").Obj(), handler: "namespace", condition: "NamespaceReady", reason: "NotOwned",
			world: []client.Object{foreign, theirs}, untouched: []client.Object{foreign, theirs},
			message: "Namespace imp7 exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label giantswarm.io/cluster=imp7",
			fix:     func(t *testing.T, _ *v1alpha1.KVMConfig) { t.Helper(); theLab.Delete(t, foreign) },
		},
		"the KVMConfig lives in the namespace of its own id": {
			config: own, handler: "namespace", condition: "NamespaceReady", reason: "InvalidNamespace",
			world:   []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "imp8"}}},
			message: "KVMConfig imp8/imp8 is in the namespace of its own cluster, which is deleted with the cluster; create it in another namespace",
		},
		"the name of a Secret is taken": {
			config: makeCluster("imp9").Obj(), handler: "certificates", condition: "CertificatesReady", reason: "NotOwned",
			world: []client.Object{taken}, untouched: []client.Object{taken},
			message: "Secret default/imp9-worker exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label giantswarm.io/cluster=imp9",
			fix:     func(t *testing.T, _ *v1alpha1.KVMConfig) { t.Helper(); theLab.Delete(t, taken) },
		},
		"a node port is taken": {
			config: makeCluster("impq").With(func(s *v1alpha1.KVMConfigSpec) {
				s.KVM.PortMappings = []v1alpha1.PortMapping{{Name: "http", NodePort: 30085, TargetPort: 30010}}
			}).Obj(),
			handler: "service", condition: "InfrastructureReady", reason: "Refused", world: []client.Object{portTaken}, untouched: []client.Object{portTaken},
			message: `the API server refuses to create Service impq/worker: Service "worker" is invalid: spec.ports[0].nodePort: Invalid value: 30085: provided port is already allocated`,
			fix:     func(t *testing.T, _ *v1alpha1.KVMConfig) { t.Helper(); theLab.Delete(t, portTaken) },
		},
	}
}

func TestValidAndImpossible(t *testing.T) {
	t.Parallel()
	for name, test := range impossibles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			create(t, test.world...)
			before := versionsOf(t, test.untouched...)
			create(t, test.config)
			told := []lab.Condition{
				{Type: test.condition, Status: metav1.ConditionFalse, Reason: test.reason, Message: test.message},
				{Type: "Ready", Status: metav1.ConditionFalse, Reason: test.reason},
				{Type: "Stalled", Status: metav1.ConditionTrue, Reason: test.reason, Message: test.message},
			}
			if test.message != "" {
				told[1].Message = test.handler + ": " + test.message
			}
			theLab.AwaitCondition(t, test.config, told...)
			for _, node := range test.makes {
				awaitPodReady(t, test.config, node)
			}
			awaitEvent(t, test.config, test.reason)
			staysCalm(t, test.config)
			if after := versionsOf(t, test.untouched...); after != before {
				t.Errorf("a foreign object was written: %s became %s", before, after)
			}
			if test.fix == nil {
				theLab.Delete(t, test.config)
				theLab.AwaitGone(t, test.config)
				return
			}
			test.fix(t, test.config)
			theLab.AwaitReady(t, test.config)
			awaitEvent(t, test.config, test.reason)
		})
	}
}

func TestQuotaThatForbidsMachinesIsToldOfAndTriedAgain(t *testing.T) {
	t.Parallel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "quota1", Labels: map[string]string{key.LabelGSCluster: "quota1"}}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "quota1", Name: "none"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")},
	}}
	create(t, namespace, quota)
	lab.Eventually(t, lab.Timeout, func() error {
		theLab.Get(t, quota)
		if len(quota.Status.Hard) == 0 {
			return fmt.Errorf("quota %s is not counted yet", quota.Name)
		}
		return nil
	})
	config := makeCluster("quota1").Obj()
	create(t, config)
	theLab.AwaitCondition(t, config, goesOn("InfrastructureReady"), lab.Condition{
		Type: "NodesReady", Status: metav1.ConditionFalse, Reason: "Retrying",
		Message: `create Deployment quota1/master-m0aaa: deployments.apps "master-m0aaa" is forbidden: exceeded quota: none, ` +
			`requested: count/deployments.apps=1, used: count/deployments.apps=0, limited: count/deployments.apps=0`,
	})
	theLab.Delete(t, quota)
	theLab.AwaitReady(t, config)
}

func TestTwoKVMConfigsOfOneID(t *testing.T) {
	t.Parallel()
	create(t, fixture.MakeVolume("twin", "twin"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "twins"}})
	first := createReady(t, makeCluster("twin1").Workers(1).HostVolume(0, "twin", "/data").Obj())
	theirs := theLab.Objects(t, first)
	volume := fixture.MakeVolume("twin", "twin")
	before, uids := versionsOf(t, append(theirs, volume)...), podUIDs(t, first, "m0aaa", "w0aaa")

	second := makeCluster("twin1").Workers(1).HostVolume(0, "twin", "/data").Obj()
	second.Namespace = "twins"
	create(t, second)
	theLab.AwaitCondition(t, second, lab.Condition{Type: "NamespaceReady", Status: metav1.ConditionFalse, Reason: "OwnedByOther",
		Message: `Namespace twin1 belongs to "KVMConfig.provider.giantswarm.io/default/twin1/namespace" and is left alone; delete it or choose another cluster id`})
	awaitEvent(t, second, "OwnedByOther")
	staysCalm(t, second)
	if made := theLab.Objects(t, second); len(made) != 0 {
		t.Errorf("the second KVMConfig has %d objects", len(made))
	}
	theLab.Delete(t, second)
	theLab.AwaitGone(t, second)

	change(t, first, addScaling)
	theLab.AwaitReady(t, first)
	if after := versionsOf(t, append(theirs, volume)...); after != before {
		t.Errorf("objects of the first were written: %s became %s", before, after)
	}
	if after := podUIDs(t, first, "m0aaa", "w0aaa"); after[0] != uids[0] || after[1] != uids[1] {
		t.Error("a machine of the first was replaced")
	}
}

func awaitPodReady(t *testing.T, config *v1alpha1.KVMConfig, node string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		for _, n := range theLab.Current(t, config).Status.Nodes {
			if n.ID == node && n.Phase == "Ready" {
				return nil
			}
		}
		return fmt.Errorf("node %s is not Ready", node)
	})
}

// awaitEvent waits for the event of the reason. It fails when there is more than one, or when the event was repeated.
func awaitEvent(t *testing.T, config *v1alpha1.KVMConfig, reason string) {
	t.Helper()
	c := everything(t)
	lab.Eventually(t, lab.Timeout, func() error {
		var list eventsv1.EventList
		if err := c.List(context.Background(), &list, client.InNamespace(config.Namespace)); err != nil {
			return err
		}
		count := 0
		for _, e := range list.Items {
			if e.Reason != reason || e.Regarding.Name != config.Name {
				continue
			}
			count++
			if e.Series != nil {
				count += int(e.Series.Count)
			}
		}
		if count > 1 {
			t.Fatalf("event %s was emitted %d times", reason, count)
		}
		if count == 0 {
			return fmt.Errorf("no event %s", reason)
		}
		return nil
	})
}

// nudges is how often staysCalm triggers a reconcile of a cluster.
const nudges = 100

// staysCalm fails when a cluster that is stuck causes more requests than necessary. Each nudge may cause a create
// request that is rejected and a read of the object in the way. The last nudge may write the status.
func staysCalm(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	lab.AwaitSteadyTokens(t)
	change(t, config, addScaling)
	theLab.AwaitCondition(t, config)
	before := theOperator.Requests.Of(config.Spec.Cluster.ID)
	for i := range nudges {
		nudge := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"example.org/nudge":"%d"}}}`, i))
		if err := theLab.Client.Patch(context.Background(), config, client.RawPatch("application/merge-patch+json", nudge)); err != nil {
			t.Fatal(err)
		}
	}
	change(t, config, addScaling)
	theLab.AwaitCondition(t, config)
	since := theOperator.Requests.Of(config.Spec.Cluster.ID)[len(before):]
	written := 0
	for _, r := range since {
		if r.Write() && r.Status < 300 {
			written++
		}
	}
	t.Logf("%d requests, %d of them successful writes", len(since), written)
	if written > 3 || len(since) > 2*(nudges+2) {
		t.Errorf("%d requests for %d nudges, %d of them writes: %v", len(since), nudges, written, since)
	}
}

// without returns the Release without a component.
func without(release *releasev1alpha1.Release, component string) *releasev1alpha1.Release {
	release.Spec.Components = slices.DeleteFunc(release.Spec.Components, func(c releasev1alpha1.Component) bool { return c.Name == component })
	return release
}
