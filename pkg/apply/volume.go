package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReleaseVolume makes a volume whose claim is gone claimable again, by taking away its reference to that claim. It does
// nothing when the volume was changed in the meantime: the next reconcile sees to it.
func (e *Engine) ReleaseVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"claimRef":null}}`, volume.ResourceVersion)
	err := e.client.Patch(ctx, volume.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return requestError("release", "PersistentVolume "+volume.Name, err)
}
