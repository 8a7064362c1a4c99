package behaviour_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

func snapshotFile(id string) string { return id + "-20261122T060000Z.db" }

func withSnapshots(spec *v1alpha1.KVMConfigSpec) {
	spec.Etcd = &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{
		Schedule: "@yearly", Keep: 3, Volume: v1alpha1.SnapshotVolume{HostPath: "/var/snapshots"},
	}}
}

// TestClusterIsBroughtBackToASnapshot: nothing runs the Jobs here. They come in order, no data is placed while a
// machine of a master runs, no master starts before all have the data, workers stay, and nothing is done twice.
func TestClusterIsBroughtBackToASnapshot(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("resto").Masters(3).Workers(1).With(withSnapshots).Obj())
	masters := []string{"m0aaa", "m1aaa", "m2aaa"}
	before, workers := podUIDs(t, config, masters...), podUIDs(t, config, "w0aaa")
	order := followRestore(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Etcd.Restore = &v1alpha1.EtcdRestore{Snapshot: snapshotFile(c.Spec.Cluster.ID)}
	})
	lab.Eventually(t, 2*lab.Timeout, func() error { return restored(t, config, snapshotFile(config.Spec.Cluster.ID)+"/0#0") })
	theLab.AwaitReady(t, config)
	order.verdict(t, len(masters))
	for i, uid := range podUIDs(t, config, masters...) {
		if uid == before[i] {
			t.Errorf("the machine of master %s is the one of before", masters[i])
		}
	}
	if diff := cmp.Diff(workers, podUIDs(t, config, "w0aaa")); diff != "" {
		t.Errorf("machines of workers were replaced (-before +after):\n%s", diff)
	}
	var jobs batchv1.JobList
	if err := theLab.Client.List(t.Context(), &jobs, client.InNamespace(key.Namespace("resto"))); err != nil || len(jobs.Items) > 0 {
		t.Errorf("%d Jobs are left, err %v", len(jobs.Items), err)
	}
	again := podUIDs(t, config, masters...)
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Etcd.Restore.Generation = 1 })
	lab.Eventually(t, 2*lab.Timeout, func() error { return restored(t, config, snapshotFile(config.Spec.Cluster.ID)+"/1#1") })
	theLab.AwaitReady(t, config)
	for i, uid := range podUIDs(t, config, masters...) {
		if uid == again[i] {
			t.Errorf("the machine of master %s was not replaced for the second restore", masters[i])
		}
	}
}

// TestClusterThatBeginsWithASnapshot: no master starts before its data is there.
func TestClusterThatBeginsWithASnapshot(t *testing.T) {
	t.Parallel()
	config := makeCluster("resnw").Masters(3).Workers(1).With(withSnapshots).With(func(spec *v1alpha1.KVMConfigSpec) {
		spec.Etcd.Restore = &v1alpha1.EtcdRestore{Snapshot: snapshotFile(spec.Cluster.ID)}
	}).Obj()
	order := followRestore(t, config)
	createReady(t, config)
	if err := restored(t, config, snapshotFile(config.Spec.Cluster.ID)+"/0#0"); err != nil {
		t.Error(err)
	}
	order.verdict(t, 3)
}

// TestSnapshotThatIsNotThere: nothing is changed, the problem is reported, and the restore can be canceled.
func TestSnapshotThatIsNotThere(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("resno").Masters(3).Workers(1).With(withSnapshots).Obj())
	before := podUIDs(t, config, "m0aaa", "m1aaa", "m2aaa")
	failChecks(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Etcd.Restore = &v1alpha1.EtcdRestore{Snapshot: snapshotFile(c.Spec.Cluster.ID)}
	})
	theLab.AwaitCondition(t, config, lab.Condition{Type: "EtcdReady", Status: metav1.ConditionFalse, Reason: "RestoreFailed"})
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Etcd.Restore = nil })
	theLab.AwaitReady(t, config)
	if diff := cmp.Diff(before, podUIDs(t, config, "m0aaa", "m1aaa", "m2aaa")); diff != "" {
		t.Errorf("machines of masters were replaced (-before +after):\n%s", diff)
	}
	if err := restored(t, config, ""); err != nil {
		t.Error(err)
	}
}

// failChecks makes Jobs create no pods and reach their deadline.
func failChecks(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	in := key.Namespace(config.Spec.Cluster.ID)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: in},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	theLab.Create(t, quota)
	lab.Eventually(t, lab.Timeout, func() error {
		if theLab.Get(t, quota); len(quota.Status.Hard) == 0 {
			return errors.New("the quota is not in force yet")
		}
		return nil
	})
	lab.Watch(t, theLab, &batchv1.JobList{}, func(event watch.EventType, job *batchv1.Job) {
		if event != watch.Added || !strings.HasPrefix(job.Name, "etcd-check-") {
			return
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`))
		if err := theLab.Client.Patch(t.Context(), job, patch); err != nil {
			t.Error(err)
		}
	}, client.InNamespace(in))
}

func restored(t *testing.T, config *v1alpha1.KVMConfig, want string) error {
	t.Helper()
	namespace := &corev1.Namespace{}
	if err := theLab.Client.Get(t.Context(), client.ObjectKey{Name: key.Namespace(config.Spec.Cluster.ID)}, namespace); err != nil {
		return err
	}
	if got := namespace.Annotations[key.AnnotationEtcdRestored]; got != want || namespace.Annotations[key.AnnotationEtcdRestoring] != "" {
		return fmt.Errorf("restored is %q, want %q; being restored is %q", got, want, namespace.Annotations[key.AnnotationEtcdRestoring])
	}
	return nil
}

// restoreOrder records the steps of a restore.
type restoreOrder struct {
	mu sync.Mutex
	// running are pods of masters that may run, and placed are Jobs that have placed the data of a master.
	running, placed map[string]bool
	// placing reports that Jobs that place data were created.
	placing bool
	wrong   []string
}

func followRestore(t *testing.T, config *v1alpha1.KVMConfig) *restoreOrder {
	t.Helper()
	o := &restoreOrder{running: map[string]bool{}, placed: map[string]bool{}}
	in := client.InNamespace(key.Namespace(config.Spec.Cluster.ID))
	masters := len(config.Spec.Cluster.Masters)
	lab.Watch(t, theLab, &corev1.PodList{}, func(event watch.EventType, pod *corev1.Pod) { o.seePod(event, pod, masters) }, in)
	lab.Watch(t, theLab, &batchv1.JobList{}, o.seeJob, in)
	return o
}

func (o *restoreOrder) seePod(event watch.EventType, pod *corev1.Pod, masters int) {
	if pod.Labels[key.LabelApp] != key.RoleMaster {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch event {
	case watch.Deleted:
		delete(o.running, pod.Name)
	case watch.Added:
		o.running[pod.Name] = true
		if o.placing && len(o.placed) < masters {
			o.wrong = append(o.wrong, fmt.Sprintf("%s begins while %d of %d masters have the snapshot", pod.Name, len(o.placed), masters))
		}
	}
}

func (o *restoreOrder) seeJob(event watch.EventType, job *batchv1.Job) {
	if !strings.HasPrefix(job.Name, key.EtcdPlacing) || event == watch.Deleted {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.placing = true
	if state.Succeeded(job) {
		o.placed[job.Name] = true
	} else if event == watch.Added && len(o.running) > 0 {
		o.wrong = append(o.wrong, fmt.Sprintf("%s is made while %v run", job.Name, slices.Sorted(maps.Keys(o.running))))
	}
}

func (o *restoreOrder) verdict(t *testing.T, masters int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, wrong := range o.wrong {
		t.Error(wrong)
	}
	if len(o.placed) < masters {
		t.Errorf("the data of %d masters was placed, want %d", len(o.placed), masters)
	}
}
