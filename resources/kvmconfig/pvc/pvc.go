// Package pvc is the handler of persistent volume claims: the data of etcd and the host volumes of workers.
package pvc

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

const (
	etcdStorageClass = "g8s-storage"
	hostStorageClass = "local-storage"
)

var etcdSize = resource.MustParse("15Gi")

// New returns the handler.
func New(engine *apply.Engine) chain.Handler[*state.Cluster] {
	return &handler{Handler: Resource().Handle(engine), volumes: engine}
}

// Declared returns the pure part of the handler.
func (h *handler) Declared() apply.Resource[*state.Cluster] { return Resource() }

// Resource is the pure part of the handler. Claims hold data, so they are only deleted with the whole cluster.
func Resource() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "pvc", Kinds: []client.Object{&corev1.PersistentVolumeClaim{}}, Build: build, KeepUnwanted: true,
	}
}

// VolumeReleaser records whose data a volume holds, and makes a volume whose claim is gone available again.
type VolumeReleaser interface {
	MarkVolume(ctx context.Context, volume *corev1.PersistentVolume, annotation, value string) error
	ReleaseVolume(ctx context.Context, volume *corev1.PersistentVolume) error
}

type handler struct {
	chain.Handler[*state.Cluster]
	volumes VolumeReleaser
}

// EnsureCreated creates the claims and records on claimed host volumes whose data they now hold.
func (h *handler) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	outcome, err := h.Handler.EnsureCreated(ctx, s)
	errs := []error{err}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if s.OwnsNamespace && claimedByCluster(v, s) && v.Annotations[key.AnnotationDataOf] == "" {
			errs = append(errs, h.volumes.MarkVolume(ctx, v, key.AnnotationDataOf, s.Config.Namespace))
		}
	}
	return outcome, errors.Join(errs...)
}

// EnsureDeleted deletes the claims. Once they are gone, it releases the host volumes for the next cluster.
func (h *handler) EnsureDeleted(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	outcome, err := h.Handler.EnsureDeleted(ctx, s)
	if err != nil || outcome.State != chain.StateDone {
		return outcome, err
	}
	var errs []error
	for i := range s.Volumes {
		if claimedByCluster(&s.Volumes[i], s) {
			errs = append(errs, h.volumes.ReleaseVolume(ctx, &s.Volumes[i]))
		}
	}
	return chain.Done(), errors.Join(errs...)
}

// claimedByCluster: if another owner has the namespace, possibly with the same id, a volume whose claim still exists
// belongs to that owner.
func claimedByCluster(volume *corev1.PersistentVolume, s *state.Cluster) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.Namespace == s.Namespace() && strings.HasPrefix(ref.Name, key.HostVolumeClaimPrefix(s.ID())) &&
		(s.OwnsNamespace || volume.Status.Phase == corev1.VolumeReleased)
}

func build(s *state.Cluster) (apply.Desired, error) {
	var desired apply.Desired
	if s.EtcdOnVolume() {
		for _, n := range s.Masters() {
			desired.Objects = append(desired.Objects, etcdClaim(s, n))
		}
	}
	claims, err := hostClaims(s)
	desired.Objects = append(desired.Objects, claims...)
	return desired, err
}

// hostClaims returns the claims of workers' host volumes. A tag identifies one volume and a name one claim, so if two
// workers want the same one, the first worker gets it.
func hostClaims(s *state.Cluster) ([]client.Object, error) {
	var claims []client.Object
	var errs []error
	byTag, byName := map[string]string{}, map[string]string{}
	for _, n := range s.Workers() {
		for _, v := range n.HostVolumes() {
			claim, err := hostClaim(s, n, v.MountTag)
			switch {
			case err != nil:
			case byTag[v.MountTag] != "":
				err = problem.Newf("HostVolumeShared", "workers %s and %s both want the host volume with the mount tag %q; one may have it",
					byTag[v.MountTag], n.ID, v.MountTag)
			case byName[claim.Name] != "":
				err = problem.Newf("HostVolumeNameTaken", "workers %s and %s both lead to the PersistentVolumeClaim %s; choose another mount tag",
					byName[claim.Name], n.ID, claim.Name)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			byTag[v.MountTag], byName[claim.Name] = n.ID, n.ID
			claims = append(claims, claim)
		}
	}
	return claims, errors.Join(errs...)
}

// etcdClaim is the volume of one master's etcd. It is ReadWriteOncePod because a replacement pod starts while the old
// one still terminates, and two machines on one etcd volume destroy it.
func etcdClaim(s *state.Cluster, n state.Node) *corev1.PersistentVolumeClaim {
	class, size := ptr.To(etcdStorageClass), etcdSize
	if etcd := s.Config.Spec.KVM.Etcd; etcd != nil {
		class, size = storageClass(etcd), ptr.Deref(etcd.Size, etcdSize)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(s, n, key.EtcdClaimName(s.ID(), n.ID)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			StorageClassName: class,
		},
	}
}

// storageClass returns the original operator's class if none is set, and the management cluster's default if it is
// empty.
func storageClass(etcd *v1alpha1.EtcdVolume) *string {
	class := ptr.Deref(etcd.StorageClassName, etcdStorageClass)
	if class == "" {
		return nil
	}
	return &class
}

// hostClaim claims the one volume that has the mount tag as a label, at its full size.
func hostClaim(s *state.Cluster, n state.Node, tag string) (*corev1.PersistentVolumeClaim, error) {
	name := key.HostVolumeClaimName(s.ID(), n.ID, tag)
	volume, err := hostVolume(s, n, tag, name)
	if err != nil {
		return nil, err
	}
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(s, n, name),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			Selector:         &metav1.LabelSelector{MatchLabels: map[string]string{key.LabelMountTag: tag}},
			StorageClassName: ptr.To(hostStorageClass),
		},
	}, nil
}

func hostVolume(s *state.Cluster, n state.Node, tag, claimName string) (*corev1.PersistentVolume, error) {
	var found []*corev1.PersistentVolume
	for i := range s.Volumes {
		if s.Volumes[i].Labels[key.LabelMountTag] == tag {
			found = append(found, &s.Volumes[i])
		}
	}
	// Volumes come in any order, but the message to the user must not depend on it.
	slices.SortFunc(found, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case len(found) == 0:
		return nil, problem.Newf("HostVolumeMissing", "worker %s: no PersistentVolume carries the label %s=%s; create one or remove the host volume",
			n.ID, key.LabelMountTag, tag)
	case len(found) > 1:
		return nil, problem.Newf("HostVolumeAmbiguous", "worker %s: the PersistentVolumes %s and %s both carry the label %s=%s; exactly one may",
			n.ID, found[0].Name, found[1].Name, key.LabelMountTag, tag)
	}
	if err := mayHave(s, n, found[0]); err != nil {
		return nil, err
	}
	if ref := found[0].Spec.ClaimRef; ref != nil && (ref.Namespace != s.Namespace() || ref.Name != claimName) {
		return nil, problem.Newf("HostVolumeClaimed", "worker %s: PersistentVolume %s with the label %s=%s is claimed by %s/%s",
			n.ID, found[0].Name, key.LabelMountTag, tag, ref.Namespace, ref.Name)
	}
	return found[0], nil
}

// mayHave returns why a worker may not have a volume: the volume is reserved for others, or it holds the data of
// others. Only administrators of the management cluster may write to volumes.
func mayHave(s *state.Cluster, n state.Node, volume *corev1.PersistentVolume) error {
	own := s.Config.Namespace
	if list, set := volume.Annotations[key.AnnotationVolumeFor]; set {
		others := func(namespace string) bool { return strings.TrimSpace(namespace) != own }
		if len(slices.DeleteFunc(strings.Split(list, ","), others)) == 0 {
			return problem.Newf("HostVolumeNotForNamespace", "worker %s: PersistentVolume %s is for KVMConfigs of other namespaces than %s; add it to the annotation %s of the "+
				"volume, or use another mount tag", n.ID, volume.Name, own, key.AnnotationVolumeFor)
		}
	}
	if owner := volume.Annotations[key.AnnotationDataOf]; owner != "" && owner != own {
		return problem.Newf("HostVolumeNeedsWiping", "worker %[1]s: PersistentVolume %[2]s holds data of a KVMConfig of another namespace; an administrator has to remove the data, "+
			"and then: kubectl annotate persistentvolume %[2]s %[3]s-", n.ID, volume.Name, key.AnnotationDataOf)
	}
	return nil
}

func meta(s *state.Cluster, n state.Node, name string) metav1.ObjectMeta {
	return s.Meta(name, state.App(n.Role), s.VersionBundle(), map[string]string{key.LabelNode: n.ID})
}
