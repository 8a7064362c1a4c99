package machines_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
)

// cdi is a fake. It plays CDI's controller, which makes the claim of a DataVolume and runs a pod that fills it: the
// module proxy has CDI's API types, of which the definition is made, and not its programs. It does what CDI does to the
// objects (pkg/controller/datavolume of kubevirt/containerized-data-importer): the claim has the labels and annotations
// of the DataVolume, and it as its controller. Nothing is fetched, and volumes are names only. What happens to a
// DataVolume that is deleted is up to the real garbage collector, and whether a guest may start to the real
// virt-controller.
//
// Unless a test says otherwise, imports succeed at once.
type cdi struct {
	ended chan struct{}
	stop  func()

	mu    sync.Mutex
	plans map[types.NamespacedName]imported
}

// imported is how far an import gets.
type imported struct {
	// progress holds the import there, and failure has it fail repeatedly; it succeeds with none of them.
	progress, failure string
}

// startCDI installs CDI, and starts KubeVirt's programs again, which end when CDI comes or goes.
func startCDI(t *testing.T) *cdi {
	t.Helper()
	all, err := definitions.CDI()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range all {
		if err := api.Create(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &cdi{ended: make(chan struct{}), stop: stop, plans: map[types.NamespacedName]imported{}}
	t.Cleanup(func() { c.uninstall(t) })
	restartKubeVirt(t)
	go func() {
		defer close(c.ended)
		for ctx.Err() == nil {
			c.work(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(glance):
			}
		}
	}()
	return c
}

// uninstall removes CDI with all DataVolumes. It may be called again.
func (c *cdi) uninstall(t *testing.T) {
	t.Helper()
	c.stop()
	<-c.ended
	all, err := definitions.CDI()
	if err != nil {
		t.Fatal(err)
	}
	removed := false
	for _, definition := range all {
		err := api.Delete(context.Background(), definition)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		removed = removed || err == nil
		p := &place{T: t}
		p.until(func() error { return gone(definition.DeepCopy()) })
	}
	if removed {
		restartKubeVirt(t)
	}
}

// restartKubeVirt does what the Deployments of virt-api and virt-controller do.
func restartKubeVirt(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := errors.Join(kube.StopController(), kube.StopAPI(), kube.StartAPI(ctx), kube.StartController(ctx)); err != nil {
		t.Fatal(err)
	}
}

// plan says how far the import of a DataVolume gets.
func (c *cdi) plan(dv types.NamespacedName, plan imported) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans[dv] = plan
}

func (c *cdi) planOf(dv *cdiv1.DataVolume) imported {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plans[key(dv)]
}

// work checks all DataVolumes once. What fails is done the next time.
func (c *cdi) work(ctx context.Context) {
	var all cdiv1.DataVolumeList
	if err := api.List(ctx, &all); err != nil {
		return
	}
	for i := range all.Items {
		if dv := &all.Items[i]; dv.DeletionTimestamp == nil && dv.Status.Phase != cdiv1.Succeeded {
			_ = c.sync(ctx, dv)
		}
	}
}

func (c *cdi) sync(ctx context.Context, dv *cdiv1.DataVolume) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := api.Get(ctx, key(dv), claim)
	if apierrors.IsNotFound(err) {
		return api.Create(ctx, claimOf(dv))
	}
	if err != nil || !metav1.IsControlledBy(claim, dv) {
		return err
	}
	late, err := waitsForConsumer(ctx, claim)
	if err != nil {
		return err
	}
	plan := c.planOf(dv)
	if claim.Status.Phase == corev1.ClaimBound && plan == (imported{}) && claim.Annotations[importerPhase] != string(corev1.PodSucceeded) {
		claim.Annotations[importerPhase] = string(corev1.PodSucceeded)
		return api.Update(ctx, claim) // the status of the DataVolume follows
	}
	before := dv.DeepCopy()
	dv.Status.ClaimName, dv.Status.Progress = claim.Name, "N/A"
	running := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionTrue, Reason: "Pod is running"}
	switch {
	case claim.Status.Phase != corev1.ClaimBound && late:
		dv.Status.Phase = cdiv1.WaitForFirstConsumer
	case claim.Status.Phase != corev1.ClaimBound:
		dv.Status.Phase = cdiv1.Pending
	case plan.failure != "":
		dv.Status.Phase = cdiv1.ImportInProgress
		dv.Status.RestartCount = 3
		running.Status, running.Reason, running.Message = corev1.ConditionFalse, "Error", plan.failure
	case plan.progress != "":
		dv.Status.Phase, dv.Status.Progress = cdiv1.ImportInProgress, cdiv1.DataVolumeProgress(plan.progress)
	default:
		dv.Status.Phase, dv.Status.Progress = cdiv1.Succeeded, "100.0%"
		running.Status, running.Reason, running.Message = corev1.ConditionFalse, "Completed", "Import Complete"
	}
	dv.Status.Conditions = []cdiv1.DataVolumeCondition{running}
	if fmt.Sprint(before.Status) == fmt.Sprint(dv.Status) {
		return nil
	}
	return api.Status().Update(ctx, dv)
}

// importerPhase is the annotation of a claim with the phase of the pod that fills it.
const importerPhase = "cdi.kubevirt.io/storage.pod.phase"

func waitsForConsumer(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if claim.Spec.StorageClassName == nil {
		return false, errors.New("the claim has no class yet")
	}
	class := &storagev1.StorageClass{}
	err := api.Get(ctx, client.ObjectKey{Name: *claim.Spec.StorageClassName}, class)
	return err == nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer, err
}

// claimOf returns the claim that CDI makes of a DataVolume.
func claimOf(dv *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	labels, annotations := map[string]string{"app": "containerized-data-importer"}, map[string]string{}
	maps.Copy(labels, dv.Labels)
	maps.Copy(annotations, dv.Annotations)
	annotations["cdi.kubevirt.io/createdForDataVolume"] = string(dv.UID)
	annotations["cdi.kubevirt.io/storage.pod.restarts"], annotations[importerPhase] = "0", string(corev1.PodPending)
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: dv.Namespace, Name: dv.Name, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
		},
		Spec: *dv.Spec.PVC,
	}
}
