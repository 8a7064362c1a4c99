package cmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/giantswarm/microerror"
	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// errDiffers sets the exit status, as diff does.
var errDiffers = errors.New("the management cluster differs from what the operator would create for the KVMConfig")

// diffOne compares the live object with the result of applying object. If there is no live object, all of object is
// new.
func diffOne(ctx context.Context, live client.Client, object client.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(object, live.Scheme())
	if err != nil {
		return "", microerror.Mask(err)
	}
	name := gvk.Kind + " " + client.ObjectKeyFromObject(object).String()
	before := object.DeepCopyObject().(client.Object)
	err = live.Get(ctx, client.ObjectKeyFromObject(object), before)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	if err != nil {
		text, err := toYAML(object)
		return unified(name, "", text), err
	}
	after, err := dryRun(ctx, live, object)
	if err != nil {
		return "", fmt.Errorf("applying %s as a trial: %w", name, err)
	}
	oldText, err := toYAML(before)
	if err != nil {
		return "", err
	}
	newText, err := toYAML(after)
	return unified(name, oldText, newText), err
}

// dryRun returns the result of applying the object. The API server stores nothing.
func dryRun(ctx context.Context, live client.Client, object client.Object) (client.Object, error) {
	after := object.DeepCopyObject().(client.Object)
	gvk, err := apiutil.GVKForObject(object, live.Scheme())
	if err != nil {
		return nil, microerror.Mask(err)
	}
	after.GetObjectKind().SetGroupVersionKind(gvk)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	delete(content, "status")
	body, err := yaml.Marshal(content)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	err = live.Patch(ctx, after, client.RawPatch(types.ApplyPatchType, body), client.DryRunAll, client.ForceOwnership, client.FieldOwner(key.Operator))
	return after, err
}

// toYAML prints the object for people. It omits the fields that the API server and the engine keep for themselves.
func toYAML(object client.Object) (string, error) {
	shown := object.DeepCopyObject().(client.Object)
	scheme, err := renderScheme()
	if err != nil {
		return "", err
	}
	gvk, err := apiutil.GVKForObject(shown, scheme)
	if err != nil {
		return "", microerror.Mask(err)
	}
	shown.GetObjectKind().SetGroupVersionKind(gvk)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shown)
	if err != nil {
		return "", microerror.Mask(err)
	}
	maskSecret(shown, content)
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		for _, name := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"} {
			delete(metadata, name)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, ownership.AnnotationApplied)
		}
	}
	text, err := yaml.Marshal(content)
	return string(text), microerror.Mask(err)
}

func unified(name, before, after string) string {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(before), B: difflib.SplitLines(after), FromFile: "cluster: " + name, ToFile: "wanted: " + name, Context: 3,
	})
	if err != nil || before == after {
		return "" // writing to memory does not fail
	}
	return text
}

// maskSecret hides the values of a Secret because a rendering may end up in a terminal's history or in a ticket. What
// remains still shows whether a value differs.
func maskSecret(object client.Object, content map[string]any) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return
	}
	masked := map[string]any{}
	for name, value := range secret.Data {
		sum := sha256.Sum256(value)
		masked[name] = "(hidden, SHA-256 " + hex.EncodeToString(sum[:8]) + ")"
	}
	content["stringData"] = masked
	delete(content, "data")
}
