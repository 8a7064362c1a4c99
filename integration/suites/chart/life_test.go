package chart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// pspRole is the administrator's role, which allows more than the operator may do itself.
const pspRole = "node-pods-psp"

// TestOperatorNeedsWhatTheChartGivesItAndNoMore: helm installs and upgrades the chart. The operator runs with only the
// installed files and permissions, and during the lives of a cluster and of a virtual machine it uses every
// permission and lacks none.
func TestOperatorNeedsWhatTheChartGivesItAndNoMore(t *testing.T) {
	i := start(t)
	notes := i.helm(t, "install", release, chart)
	// Helm has waited until the pods were ready.
	before := i.pods(t)
	if len(before) != 1 {
		t.Fatalf("without any value the pods %v run, want one", before)
	}
	i.exampleIsAccepted(t, notes)

	i.Create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: pspRole},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"policy"}, Resources: []string{"podsecuritypolicies"}, Verbs: []string{"use"}}},
	})
	i.helm(t, "upgrade", release, chart, "--set=replicas=2,ingress.className=nginx,rbac.clusterRole.psp="+pspRole)
	if after := i.pods(t); len(after) != 2 || slices.Contains(after, before[0]) {
		t.Errorf("the pods %v run after %v, want two others", after, before)
	}

	address, stop := i.operate(t)
	i.answersWhereItIsAsked(t, address)
	i.lifeOfACluster(t)
	i.lifeOfAMachine(t)
	stop()
	grants := i.grants(t)
	i.everyGrantIsUsed(t, user, grants, ofMachines)
	// Permissions that only the chart grants are missing when the chart is uninstalled.
	i.hold(t, grants, true)
	i.helm(t, "uninstall", release)
	i.hold(t, grants, false)
}

// exampleIsAccepted: the KVMConfig that helm shows to the user is valid.
func (i installation) exampleIsAccepted(t *testing.T, notes string) {
	t.Helper()
	_, example, _ := strings.Cut(notes, "<<EOF\n")
	example, _, _ = strings.Cut(example, "EOF")
	config := &v1alpha1.KVMConfig{}
	decode(t, []byte(example), config)
	if err := i.Client.Create(context.Background(), config, client.DryRunAll); err != nil || len(config.Spec.KVM.Workers) != 1 {
		t.Errorf("the example of the notes is answered %v\n%s", err, notes)
	}
}

// answersWhereItIsAsked: the operator's server answers the requests of kubelets and Prometheus.
func (i installation) answersWhereItIsAsked(t *testing.T, address string) {
	t.Helper()
	r := i.installed(t)
	for _, probe := range []*corev1.Probe{r.container().StartupProbe, r.container().ReadinessProbe, r.container().LivenessProbe} {
		lab.Eventually(t, lab.Timeout, func() error {
			_, err := loopback.Get("http://" + address + probe.HTTPGet.Path)
			return err
		})
	}
	service := &corev1.Service{ObjectMeta: r.deployment.ObjectMeta}
	i.Get(t, service)
	url := service.Annotations[key.AnnotationPromScheme] + "://" + address + service.Annotations[key.AnnotationPromPath]
	if metrics, err := loopback.Get(url); err != nil || !strings.Contains(metrics, "controller_runtime") {
		t.Errorf("metrics at %s: %v", url, err)
	}
	port := r.container().Ports[0].ContainerPort
	if listens := fmt.Sprintf("address: http://:%d\n", port); !strings.Contains(r.files["ConfigMap "+release]["config.yml"], listens) {
		t.Errorf("the container has port %d, the operator does not listen there", port)
	}
	if service.Spec.Ports[0].Port != port || service.Annotations[key.AnnotationPromPort] != fmt.Sprint(port) {
		t.Errorf("the Service has the ports %v and tells Prometheus of %s", service.Spec.Ports, service.Annotations[key.AnnotationPromPort])
	}
}

// lifeOfACluster creates a cluster, scales and upgrades it, damages it, checks its repair and deletes it.
func (i installation) lifeOfACluster(t *testing.T) {
	t.Helper()
	i.Create(t, fixture.MakeVolume("chart", "chart"))
	config := fixture.MakeCluster("chart").Workers(2).HostVolume(0, "chart", "/data").With(func(spec *v1alpha1.KVMConfigSpec) {
		spec.Etcd = &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{
			Schedule: "@yearly", Keep: 1, Volume: v1alpha1.SnapshotVolume{HostPath: "/srv"},
		}}
	}).Obj()
	i.Create(t, config)
	i.AwaitReady(t, config)
	lab.Change(t, i.Lab, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Cluster.Workers = append(c.Spec.Cluster.Workers, v1alpha1.Node{ID: "w2aaa"})
		c.Spec.KVM.Workers = append(c.Spec.KVM.Workers, v1alpha1.Machine{CPUs: 2, Memory: "4G"})
	})
	i.AwaitReady(t, config)
	lab.Change(t, i.Lab, config, func(c *v1alpha1.KVMConfig) { c.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.2"} })
	i.AwaitReady(t, config)
	for kind, object := range i.samples(t, config) {
		t.Run("restores the labels of "+kind, func(t *testing.T) { i.restoresLabels(t, object) })
	}
	i.AwaitReady(t, config)
	i.machinesMayDoNothing(t, "chart")
	i.restore(t, config)
	// Without the permission to bind, the operator could not bind a role that allows more than it may do itself.
	if binding := (&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: key.PSPBindingName("chart")}}); !i.Exists(t, binding) {
		t.Errorf("there is no binding to %s", pspRole)
	}
	i.Delete(t, config)
	i.AwaitGone(t, config)
}

// restore restores the cluster from a snapshot. The first Job creates no pod until the test has hidden the Job from the
// operator's cache.
func (i installation) restore(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: key.Namespace(config.Spec.Cluster.ID)},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	i.Create(t, quota)
	lab.Eventually(t, lab.Timeout, func() error {
		if i.Get(t, quota); len(quota.Status.Hard) == 0 {
			return errors.New("the quota is not in force yet")
		}
		return nil
	})
	lab.Change(t, i.Lab, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Etcd.Restore = &v1alpha1.EtcdRestore{Snapshot: c.Spec.Cluster.ID + "-20261122T060000Z.db"}
	})
	i.AwaitCondition(t, config, lab.Condition{Type: "EtcdReady", Status: metav1.ConditionFalse, Reason: "Checking"})
	var jobs batchv1.JobList
	if err := i.Client.List(context.Background(), &jobs, client.InNamespace(quota.Namespace)); err != nil || len(jobs.Items) != 1 {
		t.Fatalf("there are %d Jobs, want one; err %v", len(jobs.Items), err)
	}
	lab.Change(t, i.Lab, &jobs.Items[0], func(j *batchv1.Job) { delete(j.Labels, key.LabelManagedBy) })
	i.AwaitCondition(t, config, lab.Condition{Type: "EtcdReady", Status: metav1.ConditionFalse, Reason: "Retrying"})
	lab.Change(t, i.Lab, &jobs.Items[0], func(j *batchv1.Job) { j.Labels[key.LabelManagedBy] = key.Operator })
	i.Delete(t, quota)
	i.AwaitReady(t, config)
}

// samples returns the cluster's objects that the operator repairs, one of each kind.
func (i installation) samples(t *testing.T, config *v1alpha1.KVMConfig) map[string]client.Object {
	t.Helper()
	samples := map[string]client.Object{}
	for _, object := range i.Objects(t, config) {
		handler := object.GetAnnotations()[ownership.Annotation]
		// Keys are created once and never changed.
		if !strings.HasSuffix(handler, "/certificates") && !strings.HasSuffix(handler, "/randomkey") {
			samples[object.GetObjectKind().GroupVersionKind().Kind] = object
		}
	}
	for _, kind := range []client.Object{&appsv1.Deployment{}, &corev1.Secret{}, &networkingv1.Ingress{}} {
		if name := strings.TrimPrefix(fmt.Sprintf("%T", kind), "*v1."); samples[name] == nil {
			t.Errorf("the cluster has no %s", name)
		}
	}
	return samples
}

// restoresLabels: an object without the label managed-by is not in the operator's cache. The operator then finds that
// it exists, reads it and applies it.
func (i installation) restoresLabels(t *testing.T, object client.Object) {
	t.Helper()
	lab.Change(t, i.Lab, object, func(o client.Object) { delete(o.GetLabels(), key.LabelManagedBy) })
	lab.Eventually(t, lab.Timeout, func() error {
		i.Get(t, object)
		if object.GetLabels()[key.LabelManagedBy] != key.Operator {
			return fmt.Errorf("%s has the labels %v", object.GetName(), object.GetLabels())
		}
		return nil
	})
}
