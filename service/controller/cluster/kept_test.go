package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodepod"
)

// stored plays a cache with one ConfigMap and no Secret.
type stored struct {
	client.Client
	config corev1.ConfigMap
}

func (s stored) Get(_ context.Context, name client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if config, ok := object.(*corev1.ConfigMap); ok {
		s.config.DeepCopyInto(config)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
}

// TestWhoHasRunLosesItsTicket also where the node keeps its boot data, for a rollout may be paused for long: a disk that is lost meanwhile
// must not become an empty member under an old number.
func TestWhoHasRunLosesItsTicket(t *testing.T) {
	scenario, w := replaced(t)
	founding := scenario.snapshot(t, w).Masters()[1].BootData.Public
	if !strings.Contains(decode(t, founding), "TICKET=founding") {
		t.Fatal("a founder has no ticket")
	}
	scenario.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	w.deployments["master-m1aaa"].Spec.Template.Annotations[key.AnnotationNodeHash] = "of before"
	for mark, want := range map[string]bool{"": false, "2": true} {
		w.deployments["master-m1aaa"].Annotations[key.AnnotationEtcdMember] = mark
		s := scenario.snapshot(t, w)
		r := &Reconciler{Client: stored{config: corev1.ConfigMap{Data: map[string]string{nodepod.UserData: founding}}}}
		if err := r.changeKept(t.Context(), s, nil); err != nil || s.BootDataErr != nil {
			t.Fatal(err, s.BootDataErr)
		}
		desired, err := build(t, s, "configmap")
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(desired.Objects, func(o client.Object) bool {
			_, public := o.(*corev1.ConfigMap)
			return public && o.GetName() == key.BootDataName(key.RoleMaster, "ab1cd", "m1aaa")
		})
		if (at >= 0) != want {
			t.Fatalf("with the mark %q its boot data changes: %t, want %t", mark, at >= 0, want)
		}
		if want {
			text := decode(t, desired.Objects[at].(*corev1.ConfigMap).Data[nodepod.UserData])
			if !strings.Contains(text, `TICKET=\"`) {
				t.Errorf("it has its ticket:\n%s", text)
			}
		}
	}
}
