package virtualmachine

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// TestRefusedGrowthIsNotRequestedAgain, unless the claim or the size has changed, or some minutes have passed.
func TestRefusedGrowthIsNotRequestedAgain(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "system-disk-try-0", UID: "1", ResourceVersion: "1"}}
	requests := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(claim).Build(), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			requests++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, claim.Name, nil)
		},
	})
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := newGrower(apply.New(c, c, clock), clock)
	for _, step := range []struct {
		what, version, size string
		after               time.Duration
		want                int
	}{
		{"at first", "1", "2Gi", 0, 1},
		{"again", "1", "2Gi", time.Minute, 1},
		{"to another size", "1", "3Gi", 0, 2},
		{"of a claim that has changed", "2", "3Gi", 0, 3},
		{"after some minutes", "2", "3Gi", refusedFor, 4},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		g := claim.DeepCopy()
		g.ResourceVersion = step.version
		err := w.Grow(t.Context(), virtualmachine.Growth{Claim: g, To: resource.MustParse(step.size)})
		if p, ok := problem.As(err); !ok || p.Reason != "ClaimNotGrown" || requests != step.want {
			t.Errorf("%s: %v, after %d requests, want %d", step.what, err, requests, step.want)
		}
	}
}
