package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MarkVolume sets an annotation of a volume. It does nothing if the volume was changed in the meantime; the next
// reconcile handles that.
func (e *Engine) MarkVolume(ctx context.Context, volume *corev1.PersistentVolume, annotation, value string) error {
	return e.patchVolume(ctx, "mark", volume, fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`, volume.ResourceVersion, annotation, value))
}

// ReleaseVolume makes a volume whose claim is gone claimable again, by removing its reference to that claim. It does
// nothing if the volume was changed in the meantime; the next reconcile handles that.
func (e *Engine) ReleaseVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	return e.patchVolume(ctx, "release", volume, fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"claimRef":null}}`, volume.ResourceVersion))
}

func (e *Engine) patchVolume(ctx context.Context, do string, volume *corev1.PersistentVolume, patch string) error {
	err := e.client.Patch(ctx, volume.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return e.wrote(ctx, do, "PersistentVolume "+volume.Name, err)
}
