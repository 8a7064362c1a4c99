package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

func readRelease(ctx context.Context, reader client.Reader, config *v1alpha1.KVMConfig, w *world) error {
	label := config.Labels[key.LabelReleaseVersion]
	if label == "" {
		return nil
	}
	release := &releasev1alpha1.Release{}
	err := reader.Get(ctx, client.ObjectKey{Name: versions.ReleaseName(label)}, release)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.release = release
	return err
}
