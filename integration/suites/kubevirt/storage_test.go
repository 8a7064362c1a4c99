package kubevirt_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func TestAClaimWaitsForItsMachineAndGrows(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	claim := p.object(claimYAML, "spec.storageClassName=late", "spec.accessModes=[ReadWriteMany]", "spec.volumeMode=Block")
	if err := virt.Client().Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := virt.Client().Create(t.Context(), p.object(machineYAML, "spec.runStrategy=Halted")); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Stopped")
	p.awaitClaim(corev1.ClaimPending, "0")
	if err := virt.StartMachine(t.Context(), p.machine); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Running")
	p.awaitClaim(corev1.ClaimBound, "40Gi")
	p.eventually(func(ctx context.Context) error {
		stored := &corev1.PersistentVolumeClaim{}
		if err := virt.Client().Get(ctx, p.claim(), stored); err != nil {
			return err
		}
		stored.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("60Gi")
		return virt.Client().Update(ctx, stored)
	})
	p.awaitClaim(corev1.ClaimBound, "60Gi")
}

func (p *place) claim() types.NamespacedName {
	return types.NamespacedName{Namespace: p.namespace, Name: "build-agent-root"}
}

// awaitClaim waits until the claim of the machine has a phase and a size.
func (p *place) awaitClaim(phase corev1.PersistentVolumeClaimPhase, size string) {
	p.t.Helper()
	p.eventually(func(ctx context.Context) error {
		claim := &corev1.PersistentVolumeClaim{}
		if err := virt.Client().Get(ctx, p.claim(), claim); err != nil {
			return err
		}
		has := claim.Status.Capacity[corev1.ResourceStorage]
		if claim.Status.Phase != phase || has.Cmp(resource.MustParse(size)) != 0 {
			return fmt.Errorf("the claim is %s with %s, want %s with %s", claim.Status.Phase, has.String(), phase, size)
		}
		return nil
	})
}
