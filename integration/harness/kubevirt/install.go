package kubevirt

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

// The kinds of objects that are installed in their own steps.
const (
	definitionKind = "CustomResourceDefinition"
	serviceKind    = "APIService"
	webhookSuffix  = "WebhookConfiguration"
)

// The kinds that tests of virtual machines use.
var (
	VirtualMachineKind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"}
	InstanceKind       = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
)

// configuration is the KubeVirt object. Its status is virt-operator's: without a phase, the programs ignore the object.
// Software emulation spares the nodes a device. HotplugVolumes is the way by which clusters up to 1.8 add volumes.
var configuration = map[string]any{
	"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
	"metadata": map[string]any{"name": "kubevirt", "namespace": Namespace},
	"spec": map[string]any{
		"configuration": map[string]any{
			"developerConfiguration": map[string]any{
				"useEmulation": true, "featureGates": []any{"HotplugVolumes"},
			},
		},
	},
	"status": map[string]any{
		"phase": "Deployed", "defaultArchitecture": "amd64", "operatorVersion": "v1.8.4",
		"observedKubeVirtVersion": "v1.8.4", "targetKubeVirtVersion": "v1.8.4",
	},
}

// Install installs KubeVirt as virt-operator does and starts its programs. It returns when the webhooks and the
// subresources are in effect.
func (k *KubeVirt) Install(ctx context.Context) error {
	began := time.Now()
	objects, err := k.manifests()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"definitions and roles", func(ctx context.Context) error {
			return k.createAll(ctx, objects, func(kind string) bool { return !calls(kind) })
		}},
		{"established definitions", func(ctx context.Context) error { return k.established(ctx, objects) }},
		{"configuration", k.configure},
		{"programs", func(ctx context.Context) error { return k.startPrograms(ctx, virtAPI, virtController) }},
		{"webhooks and subresources", func(ctx context.Context) error { return k.createAll(ctx, objects, calls) }},
		{"webhooks in effect", k.webhooksAnswer},
		{"subresources in effect", func(ctx context.Context) error { return k.available(ctx, objects) }},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("installing KubeVirt: %s: %w", step.name, err)
		}
		k.say("KubeVirt: %s after %.1fs", step.name, time.Since(began).Seconds())
	}
	return k.handler.start(ctx)
}

// Uninstall removes KubeVirt as its deletion does: the definitions first, with all that is defined by them, while
// virt-controller and virt-handler still end the virtual machines, and then the programs. A virtual machine with a
// finalizer of another controller holds it up until the context ends. The roles stay.
func (k *KubeVirt) Uninstall(ctx context.Context) error {
	objects, err := k.manifests()
	if err != nil {
		return err
	}
	workloads := func(object *unstructured.Unstructured) bool {
		return object.GetKind() == definitionKind && object.GetName() != "kubevirts.kubevirt.io"
	}
	rest := func(object *unstructured.Unstructured) bool {
		return calls(object.GetKind()) || object.GetName() == "kubevirts.kubevirt.io"
	}
	if err := k.deleteAll(ctx, objects, workloads); err != nil {
		return fmt.Errorf("uninstalling KubeVirt: definitions: %w", err)
	}
	k.handler.stop()
	if err := errors.Join(k.stopProgram(virtAPI), k.stopProgram(virtController)); err != nil {
		return fmt.Errorf("uninstalling KubeVirt: programs: %w", err)
	}
	if err := k.deleteAll(ctx, objects, rest); err != nil {
		return fmt.Errorf("uninstalling KubeVirt: webhooks and subresources: %w", err)
	}
	return nil
}

// calls reports whether objects of a kind make the API server call virt-api.
func calls(kind string) bool { return kind == serviceKind || strings.HasSuffix(kind, webhookSuffix) }

// manifests returns what virt-operator applies, with the address and the CA of virt-api.
func (k *KubeVirt) manifests() ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(filepath.Join(k.cluster.Tools(), manifestFile))
	if err != nil {
		return nil, fmt.Errorf("reading KubeVirt's manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(content), "---\n") {
		if document == "" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(document)); err != nil {
			return nil, fmt.Errorf("decoding KubeVirt's manifests: %w", err)
		}
		unstructured.RemoveNestedField(object.Object, "status")
		if err := k.redirect(object); err != nil {
			return nil, fmt.Errorf("changing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// redirect makes an object that refers to virt-api refer to its port on loopback. virt-operator adds the CA, too.
func (k *KubeVirt) redirect(object *unstructured.Unstructured) error {
	port := int64(k.ports[virtAPI])
	switch kind := object.GetKind(); {
	case kind == "Service":
		object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}
	case kind == serviceKind:
		return errors.Join(
			unstructured.SetNestedField(object.Object, port, "spec", "service", "port"),
			unstructured.SetNestedField(object.Object, k.authority(), "spec", "caBundle"))
	case kind == "ConfigMap":
		object.Object["data"] = map[string]any{"ca-bundle": string(k.cluster.Authority())}
	case strings.HasSuffix(kind, webhookSuffix):
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, webhook := range webhooks {
			err := errors.Join(
				unstructured.SetNestedField(webhook.(map[string]any), port, "clientConfig", "service", "port"),
				unstructured.SetNestedField(webhook.(map[string]any), k.authority(), "clientConfig", "caBundle"))
			if err != nil {
				return err
			}
		}
		object.Object["webhooks"] = webhooks
	}
	return nil
}

// createAll creates the objects of the chosen kinds: the first, the namespace, before the others, which are created in
// parallel. What exists is kept.
func (k *KubeVirt) createAll(ctx context.Context, objects []*unstructured.Unstructured, chosen func(kind string) bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, object := range objects {
		if !chosen(object.GetKind()) {
			continue
		}
		create := func() error {
			err := k.admin.Create(ctx, object)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		}
		if object.GetKind() != "Namespace" {
			group.Go(create)
		} else if err := create(); err != nil {
			return errors.Join(err, group.Wait())
		}
	}
	return group.Wait()
}

// deleteAll deletes the chosen objects and returns when they are gone.
func (k *KubeVirt) deleteAll(
	ctx context.Context, objects []*unstructured.Unstructured, chosen func(*unstructured.Unstructured) bool,
) error {
	var group errgroup.Group
	for _, object := range slices.Backward(objects) {
		if !chosen(object) {
			continue
		}
		group.Go(func() error {
			if err := client.IgnoreNotFound(k.admin.Delete(ctx, object)); err != nil {
				return fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			// Definitions are large, so only their metadata is read.
			left := &metav1.PartialObjectMetadata{}
			left.SetGroupVersionKind(object.GroupVersionKind())
			return poll.Until(ctx, slowInterval, nil, func(ctx context.Context) error {
				err := k.admin.Get(ctx, client.ObjectKeyFromObject(object), left)
				if err == nil {
					return fmt.Errorf("%s %s is still there, with finalizers %v", object.GetKind(), object.GetName(), left.Finalizers)
				}
				return client.IgnoreNotFound(err)
			})
		})
	}
	return group.Wait()
}

// established waits until the API server serves all definitions.
func (k *KubeVirt) established(ctx context.Context, objects []*unstructured.Unstructured) error {
	return k.awaitCondition(ctx, objects, definitionKind, "Established")
}

// available waits until the API server has reached virt-api for the subresources. Until then, it does not delete
// namespaces, for example.
func (k *KubeVirt) available(ctx context.Context, objects []*unstructured.Unstructured) error {
	return k.awaitCondition(ctx, objects, serviceKind, "Available")
}

func (k *KubeVirt) awaitCondition(ctx context.Context, objects []*unstructured.Unstructured, kind, condition string) error {
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		err := poll.Until(ctx, slowInterval, nil, func(ctx context.Context) error {
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(object.GroupVersionKind())
			if err := k.admin.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
				return err
			}
			if !hasCondition(live, condition) {
				return fmt.Errorf("%s %s is not %s: %v", kind, live.GetName(), condition, live.Object["status"])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// configure creates the KubeVirt object with its status.
func (k *KubeVirt) configure(ctx context.Context) error {
	object := (&unstructured.Unstructured{Object: configuration}).DeepCopy()
	status := object.Object["status"]
	// The client knows a kind a moment after its definition is established.
	err := poll.Until(ctx, pollInterval, nil, func(ctx context.Context) error {
		err := k.admin.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			return k.admin.Get(ctx, client.ObjectKeyFromObject(object), object)
		}
		return err
	})
	if err != nil {
		return err
	}
	object.Object["status"] = status
	return k.admin.Status().Update(ctx, object)
}

// webhooksAnswer waits until a webhook refuses what only a webhook refuses. The API server learns of webhooks by a
// watch, like of everything else.
func (k *KubeVirt) webhooksAnswer(ctx context.Context) error {
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(VirtualMachineKind)
	probe.SetName("probe")
	probe.SetNamespace(Namespace)
	probe.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
		"domain": map[string]any{"devices": map[string]any{}},
	}}}
	return poll.Until(ctx, pollInterval, nil, func(ctx context.Context) error {
		err := k.admin.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		switch {
		case err == nil:
			return errors.New("a virtual machine without a run strategy is accepted")
		case strings.Contains(err.Error(), "RunStrategy"):
			return nil
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			return fmt.Errorf("virtual machines are not served yet: %w", err)
		default:
			return err
		}
	})
}

func hasCondition(object *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == name {
			return fields["status"] == "True"
		}
	}
	return false
}

// authority returns the cluster's CA in the form of JSON's bytes.
func (k *KubeVirt) authority() string {
	return base64.StdEncoding.EncodeToString(k.cluster.Authority())
}
