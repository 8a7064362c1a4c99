package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	provisionerName = "provisioner.test.kvm-operator"
	workersOfVolume = 2

	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	nodeAnnotation        = "volume.kubernetes.io/selected-node"
	provisionedBy         = "pv.kubernetes.io/provisioned-by"
)

// Provisioner is a storage provider for tests. It plays the parts of external-provisioner and external-resizer: the
// real controller manager and scheduler say which claim needs a volume, and bind it. Its volumes are
// names only, which is all that pods on simulated nodes need, in every access mode and volume mode.
type Provisioner struct {
	client kubernetes.Interface
	claims corev1listers.PersistentVolumeClaimLister
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	end    func()

	mu   sync.Mutex // guards held
	held map[string]bool
}

// StartProvisioner starts a provider in a cluster, as an administrator. Classes decide which claims it serves. The
// context limits only the start.
func StartProvisioner(ctx context.Context, config *rest.Config) (*Provisioner, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the provisioner: %w", err)
	}
	// Without this object, the controller manager would wait for the driver to attach volumes to nodes.
	attached := false
	_, err = client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: provisionerName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attached},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the CSIDriver %s: %w", provisionerName, err)
	}
	return startProvisioner(ctx, client)
}

func startProvisioner(starting context.Context, client kubernetes.Interface) (*Provisioner, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &Provisioner{
		client: client, held: map[string]bool{}, claims: factory.Core().V1().PersistentVolumeClaims().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
	claims, volumes := factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().PersistentVolumes().Informer()
	_, err := claims.AddEventHandler(onChange(func(object any) {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			p.queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
		}
	}))
	if err == nil {
		// A volume is queued without a namespace, as it has none.
		_, err = volumes.AddEventHandler(onChange(func(object any) {
			if volume, ok := object.(*corev1.PersistentVolume); ok && volume.Status.Phase == corev1.VolumeReleased {
				p.queue.Add(types.NamespacedName{Name: volume.Name})
			}
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("watching claims and volumes: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	for range workersOfVolume {
		workers.Go(func() { p.work(ctx) })
	}
	factory.Start(ctx.Done())
	p.end = func() {
		cancel()
		p.queue.ShutDown()
		workers.Wait()
		factory.Shutdown()
	}
	if !cache.WaitForCacheSync(starting.Done(), claims.HasSynced, volumes.HasSynced) {
		p.Stop()
		return nil, errors.New("watching claims and volumes: the watch does not start")
	}
	return p, nil
}

func onChange(do func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, object any) { do(object) }}
}

// Stop ends the provider. What it has made stays.
func (p *Provisioner) Stop() { p.end() }

// Hold keeps claims of a namespace that have no volume Pending until Release, as a provider does that is out of space.
func (p *Provisioner) Hold(namespace string) { p.setHeld(namespace, true) }

// Release ends Hold.
func (p *Provisioner) Release(namespace string) {
	p.setHeld(namespace, false)
	claims, err := p.claims.PersistentVolumeClaims(namespace).List(labels.Everything())
	if err != nil {
		panic(err) // a list from a cache does not fail
	}
	for _, claim := range claims {
		p.queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
}

func (p *Provisioner) setHeld(namespace string, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[namespace] = held
}

func (p *Provisioner) isHeld(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[namespace]
}

// Class creates a storage class that the provider serves. Its volumes can grow and are deleted with their claims. Late
// ones are made when a pod that uses the claim is scheduled.
func (p *Provisioner) Class(ctx context.Context, name string, isDefault, late bool) error {
	mode, grows, reclaim := storagev1.VolumeBindingImmediate, true, corev1.PersistentVolumeReclaimDelete
	if late {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		Provisioner: provisionerName, VolumeBindingMode: &mode, AllowVolumeExpansion: &grows, ReclaimPolicy: &reclaim,
	}
	if isDefault {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	if _, err := p.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating storage class %s: %w", name, err)
	}
	return nil
}

func (p *Provisioner) work(ctx context.Context) {
	for {
		key, ended := p.queue.Get()
		if ended {
			return
		}
		if err := p.sync(ctx, key); err != nil {
			p.queue.AddRateLimited(key)
		} else {
			p.queue.Forget(key)
		}
		p.queue.Done(key)
	}
}

func (p *Provisioner) sync(ctx context.Context, key types.NamespacedName) error {
	if key.Namespace == "" {
		return p.remove(ctx, key.Name)
	}
	claim, err := p.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || claim.Annotations[provisionerAnnotation] != provisionerName || claim.DeletionTimestamp != nil {
		return err
	}
	if claim.Status.Phase == corev1.ClaimBound {
		return p.grow(ctx, claim)
	}
	return p.provision(ctx, claim)
}

// provision makes the volume of a claim. The controller manager asks for one of a late class only with a node.
func (p *Provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := p.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	late := *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if p.isHeld(claim.Namespace) || claim.Spec.VolumeName != "" || late && claim.Annotations[nodeAnnotation] == "" {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: *claim.Spec.StorageClassName, PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			// No driver of this name runs: only a kubelet would ask it for something.
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: provisionerName, VolumeHandle: name},
			},
		},
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// grow makes the volume of a claim as large as the claim asks.
func (p *Provisioner) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	wanted, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if wanted.Cmp(has) <= 0 {
		return nil
	}
	capacity := map[string]any{"capacity": map[string]any{"storage": wanted.String()}}
	volume, err := json.Marshal(map[string]any{"spec": capacity})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().PersistentVolumes().Patch(ctx, claim.Spec.VolumeName, types.MergePatchType, volume, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	status, err := json.Marshal(map[string]any{"status": capacity})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).
		Patch(ctx, claim.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

// remove deletes a volume whose claim is gone.
func (p *Provisioner) remove(ctx context.Context, name string) error {
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || volume.Annotations[provisionedBy] != provisionerName ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return err
	}
	err = p.client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
