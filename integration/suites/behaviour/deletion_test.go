package behaviour_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

func TestDeletedClusterLeavesNothingAndMachinesGoFirst(t *testing.T) {
	t.Parallel()
	began := time.Now()
	config := createReady(t, makeCluster("del1").Masters(3).Workers(2).Obj())
	creation := time.Since(began)
	raw := deletionByHand(t, "del1-by-hand", 5)
	ends := followEnds(t, config)
	// One machine takes its time, so anything that does not wait for it is deleted before it.
	pod := podOf(t, config, "w0aaa")
	change(t, pod, func(p *corev1.Pod) { p.Finalizers = []string{"example.org/held"} })
	began = time.Now()
	theLab.Delete(t, config)
	theLab.AwaitCondition(t, config, lab.Condition{
		Type: "NodesReady", Status: metav1.ConditionFalse, Reason: "Deleting", Message: "waits until gone: Deployment del1/worker-w0aaa",
	})
	change(t, pod, func(p *corev1.Pod) { p.Finalizers = nil })
	theLab.AwaitGone(t, config)
	took := time.Since(began)
	t.Logf("deletion took %s, creation %s, and the deletion of as many machines and a namespace by hand %s", took, creation, raw)
	if took > max(2*time.Minute, 3*(creation+raw)) {
		t.Errorf("that took too long; what went when:\n%s", ends.log())
	}
	awaitNothingLeft(t, config)
	ends.verdict(t)
}

// deletionByHand returns how long it takes to delete this number of Deployments of one pod and then their namespace, as
// the operator does.
func deletionByHand(t *testing.T, name string, machines int) time.Duration {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	create(t, namespace)
	for i := range machines {
		labels := map[string]string{"app": fmt.Sprintf("machine-%d", i)}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: labels["app"]}}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine", Image: "machine"}}
		create(t, d)
	}
	inside := client.InNamespace(name)
	lab.Eventually(t, lab.Timeout, func() error {
		var pods corev1.PodList
		if err := theLab.Client.List(context.Background(), &pods, inside); err != nil {
			return err
		}
		running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		if len(running) != machines {
			return fmt.Errorf("%d of %d pods run", len(running), machines)
		}
		return nil
	})
	began := time.Now()
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	if err := theLab.Client.DeleteAllOf(context.Background(), &appsv1.Deployment{}, inside, foreground); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, lab.Timeout, func() error {
		var left appsv1.DeploymentList
		if err := theLab.Client.List(context.Background(), &left, inside); err != nil || len(left.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d Deployments are left", len(left.Items))
	})
	theLab.Delete(t, namespace)
	theLab.AwaitGone(t, namespace)
	return time.Since(began)
}

func TestHostVolumeIsClaimableAgainAndItsDataStays(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(data, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	volume := fixture.MakeVolume("del2", "del2")
	volume.Spec.HostPath.Path = filepath.Dir(data)
	create(t, volume)
	config := createReady(t, makeCluster("del2").Workers(1).HostVolume(0, "del2", "/data").Obj())
	theLab.Get(t, volume)
	if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.Name != "local-pvc-worker-del2-w0aaa-del2" {
		t.Fatalf("the volume is claimed by %+v", volume.Spec.ClaimRef)
	}
	theLab.Delete(t, config)
	theLab.AwaitGone(t, config)
	awaitNothingLeft(t, config)
	lab.Eventually(t, lab.Timeout, func() error {
		theLab.Get(t, volume)
		if volume.Spec.ClaimRef != nil || volume.Status.Phase != corev1.VolumeAvailable {
			return fmt.Errorf("the volume is %s and claimed by %+v", volume.Status.Phase, volume.Spec.ClaimRef)
		}
		return nil
	})
	if text, err := os.ReadFile(data); err != nil || string(text) != "data" {
		t.Errorf("the data on the volume is %q (%v)", text, err)
	}
	other := clusterIn(t, "tenant-of-volumes", "del2c")
	other.Spec.KVM.Workers[0].HostVolumes = config.Spec.KVM.Workers[0].HostVolumes
	create(t, other)
	theLab.AwaitCondition(t, other, lab.Condition{Type: "InfrastructureReady", Status: metav1.ConditionFalse, Reason: "HostVolumeNeedsWiping"})
	again := createReady(t, makeCluster("del2b").Workers(1).HostVolume(0, "del2", "/data").Obj())
	theLab.Get(t, volume)
	if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.Namespace != again.Spec.Cluster.ID {
		t.Errorf("the volume is claimed by %+v, want the next cluster", volume.Spec.ClaimRef)
	}
}

func TestDeletionNeedsNeitherReleaseNorStatus(t *testing.T) {
	t.Parallel()
	release := releaseOf("21.0.0")
	create(t, release)
	config := createReady(t, makeCluster("del3").Workers(1).Release("21.0.0", "4.0.0").Obj())
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Annotations = map[string]string{key.AnnotationPaused: "true"} })
	theLab.Delete(t, release)
	lab.Eventually(t, lab.Timeout, func() error {
		theLab.Get(t, config)
		config.Status = v1alpha1.KVMConfigStatus{}
		return theLab.Client.Status().Update(context.Background(), config)
	})
	theLab.Delete(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Annotations = nil })
	theLab.AwaitGone(t, config)
	awaitNothingLeft(t, config)
}

func TestDeletionBeforeTheClusterIsComplete(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]struct {
		id    string
		await func(*v1alpha1.KVMConfig) client.Object
	}{
		"at once": {id: "del4a"},
		"when the namespace is there": {id: "del4b", await: func(c *v1alpha1.KVMConfig) client.Object {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.Cluster.ID}}
		}},
		"when the keys are there": {id: "del4c", await: func(c *v1alpha1.KVMConfig) client.Object { return &corev1.Secret{ObjectMeta: beside(c, "ca")} }},
		"when the first machine is there": {id: "del4d", await: func(c *v1alpha1.KVMConfig) client.Object {
			return &appsv1.Deployment{ObjectMeta: in(c, "master-m0aaa")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := makeCluster(moment.id).Workers(1).Obj()
			create(t, config)
			if moment.await != nil {
				object := moment.await(config)
				lab.Eventually(t, lab.Timeout, func() error {
					return theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
				})
			}
			theLab.Delete(t, config)
			theLab.AwaitGone(t, config)
			awaitNothingLeft(t, config)
		})
	}
}

func TestDeletionLeavesAForeignNamespaceAlone(t *testing.T) {
	t.Parallel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "del5"}}
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "del5", Name: "master"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	volume := fixture.MakeVolume("del5", "del5")
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "del5", Name: "local-pvc-worker-del5-w0aaa-del5"}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "del5", Name: "local-pvc-worker-del5-w0aaa-del5"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: volume.Spec.AccessModes, VolumeName: "del5", StorageClassName: &volume.Spec.StorageClassName},
	}
	claim.Spec.Resources.Requests = volume.Spec.Capacity
	create(t, namespace, theirs, volume, claim)
	lab.Eventually(t, lab.Timeout, func() error {
		theLab.Get(t, volume)
		theLab.Get(t, claim)
		if volume.Status.Phase != corev1.VolumeBound || claim.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("the volume is %s, the claim %s", volume.Status.Phase, claim.Status.Phase)
		}
		return nil
	})
	before := versionsOf(t, namespace, theirs, volume, claim)
	config := makeCluster("del5").Workers(1).HostVolume(0, "del5", "/data").Obj()
	create(t, config)
	theLab.AwaitCondition(t, config, lab.Condition{Type: "NamespaceReady", Status: metav1.ConditionFalse, Reason: "NotOwned"})
	theLab.Delete(t, config)
	theLab.AwaitGone(t, config)
	if after := versionsOf(t, namespace, theirs, volume, claim); after != before {
		t.Errorf("a foreign object has changed: %s became %s", before, after)
	}
}

func TestFinalizersOfTheOriginalGoWithTheCluster(t *testing.T) {
	t.Parallel()
	config := makeCluster("del6").Obj()
	config.Finalizers = []string{key.FinalizerDeleter, key.FinalizerCluster, key.FinalizerTerminator, "example.org/foreign"}
	createReady(t, config)
	theLab.Delete(t, config)
	lab.Eventually(t, lab.Timeout, func() error {
		if left := theLab.Current(t, config).Finalizers; len(left) != 1 || left[0] != "example.org/foreign" {
			return fmt.Errorf("finalizers %v", left)
		}
		return nil
	})
	awaitNothingLeft(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Finalizers = nil })
	theLab.AwaitGone(t, config)
}

func TestDeletionSurvivesARestart(t *testing.T) {
	t.Parallel()
	first := theLab.Run(t, ofShard("restart"))
	config := fixture.MakeCluster("del7").Workers(2).Label(shard, "restart").Obj()
	createReady(t, config)
	// A pod that stays blocks the deletion at this point.
	pod := podOf(t, config, "w0aaa")
	change(t, pod, func(p *corev1.Pod) { p.Finalizers = []string{"example.org/held"} })
	theLab.Delete(t, config)
	theLab.AwaitGone(t, &appsv1.Deployment{ObjectMeta: in(config, "worker-w1aaa")})
	first.Stop()
	change(t, pod, func(p *corev1.Pod) { p.Finalizers = nil })
	theLab.AwaitGone(t, pod)
	theLab.Run(t, ofShard("restart"))
	theLab.AwaitGone(t, config)
	awaitNothingLeft(t, config)
}

// awaitNothingLeft waits until nothing of a cluster exists, including its keys and objects without a namespace.
func awaitNothingLeft(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	theLab.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace(config.Spec.Cluster.ID)}})
	for _, object := range theLab.Objects(t, config) {
		t.Errorf("%T %s/%s is left", object, object.GetNamespace(), object.GetName())
	}
}

// versionsOf returns the UIDs and versions of objects, which change with any write.
func versionsOf(t *testing.T, objects ...client.Object) string {
	t.Helper()
	versions := ""
	for _, object := range objects {
		theLab.Get(t, object)
		versions += fmt.Sprintf("%T %s %s; ", object, object.GetUID(), object.GetResourceVersion())
	}
	return versions
}

// ends records when each object was removed, as the revision of the API server's store, which all kinds share.
type ends struct {
	mu    sync.Mutex
	at    map[string][]int
	began time.Time
	lines []string
}

func followEnds(t *testing.T, config *v1alpha1.KVMConfig) *ends {
	t.Helper()
	e := &ends{at: map[string][]int{}, began: time.Now()}
	id := config.Spec.Cluster.ID
	inside, managed := client.InNamespace(id), client.MatchingLabels{key.LabelManagedBy: key.Operator, key.LabelGSCluster: id}
	lab.Watch(t, theLab, &corev1.PodList{}, func(event watch.EventType, o *corev1.Pod) { e.see(event, "Pod", o) }, inside)
	lab.Watch(t, theLab, &appsv1.DeploymentList{}, func(event watch.EventType, o *appsv1.Deployment) { e.see(event, "Deployment", o) }, inside, managed)
	lab.Watch(t, theLab, &corev1.ServiceList{}, func(event watch.EventType, o *corev1.Service) { e.see(event, "Service", o) }, inside, managed)
	lab.Watch(t, theLab, &corev1.ConfigMapList{}, func(event watch.EventType, o *corev1.ConfigMap) { e.see(event, "ConfigMap", o) }, inside, managed)
	lab.Watch(t, theLab, &corev1.SecretList{}, func(event watch.EventType, o *corev1.Secret) {
		if o.Name != key.KubeconfigName(id) { // no machine uses that one
			e.see(event, "Secret", o)
		}
	}, managed)
	lab.Watch(t, theLab, &corev1.NamespaceList{}, func(event watch.EventType, o *corev1.Namespace) {
		if event == watch.Modified && o.DeletionTimestamp != nil {
			e.see(watch.Deleted, "Namespace", o)
		}
	}, managed)
	return e
}

func (e *ends) see(event watch.EventType, kind string, object client.Object) {
	if event != watch.Deleted {
		return
	}
	revision, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[kind] = append(e.at[kind], revision)
	e.lines = append(e.lines, fmt.Sprintf("%6.1fs %s %s", time.Since(e.began).Seconds(), kind, object.GetName()))
}

func (e *ends) log() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.lines, "\n")
}

// verdict checks that machines stop before anything that they use is deleted.
func (e *ends) verdict(t *testing.T) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, kind := range []string{"Pod", "Deployment", "Service", "ConfigMap", "Secret", "Namespace"} {
			if len(e.at[kind]) == 0 {
				return fmt.Errorf("no %s was seen to vanish", kind)
			}
		}
		return nil
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	last := 0
	for _, revision := range append(e.at["Pod"], e.at["Deployment"]...) {
		last = max(last, revision)
	}
	for _, kind := range []string{"Service", "ConfigMap", "Secret", "Namespace"} {
		for _, revision := range e.at[kind] {
			if revision < last {
				t.Errorf("a %s went at revision %d, the last machine at %d", kind, revision, last)
			}
		}
	}
}
