package machines_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const (
	importing  = `{template: small, disks: [{name: root, source: {http: {url: "https://images.example.com/debian.qcow2"}}}]}`
	importRoot = "StorageReady=False/Importing"
)

var withoutCDI = want{
	phase: v1alpha1.PhaseCreating, ready: v1alpha1.CDINotInstalled, says: "disks to be imported: root; CDI is not installed",
	others: []string{"StorageReady=False/CDINotInstalled", "NetworkReady=True/NetworkConfigured"},
}

// TestDisksAreImported is B1. CDI is not installed at first, and is removed at the end, as the operator runs.
func TestDisksAreImported(t *testing.T) {
	p := alone(t)
	m, plain := p.machine("vm", importing), p.machine("plain", "{template: small}")
	p.await(m, withoutCDI)
	p.await(plain, runs)
	p.operator.healthy(t)
	p.stays(m, plain)
	if err := p.nothing(m); err != nil {
		t.Error(err)
	}
	root := p.disk("vm-root")
	c := startCDI(t)
	c.plan(root, imported{progress: "42.10%"})
	p.awaitImport(m, "disk root is being imported: DataVolume "+root.String()+" is ImportInProgress, 40%")
	p.stays(m, plain)
	claim := get(p, root.Name, &corev1.PersistentVolumeClaim{})
	c.plan(root, imported{})
	p.await(m, runs)
	p.becomesOrdinary(m, claim)
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Disks[0].Size = "30Gi" })
	p.until(func() error { return p.capacity(root.Name, "30Gi") })
	p.stays(m)

	for name, test := range map[string]func(*place, *cdi){
		"an import that fails says why, and continues":       importFails,
		"a Machine that is deleted takes its import with it": deletedWhileImporting,
		"a claim of a removed disk is filled to its end":     removedWhileImporting,
		"a class that waits for its first consumer":          importsLate,
		"what is not the Machine's is left alone":            importsOverNothing,
		"a claim that exists already is left alone":          importsOverNoClaim,
		"half a disk is not taken for a whole one":           orphanedWhileImporting,
	} {
		t.Run(name, func(t *testing.T) {
			test(&place{T: t, namespace: p.namespace, operator: p.operator}, c)
		})
	}

	half := p.machine("half", importing)
	c.plan(p.disk("half-root"), imported{progress: "50%"})
	p.awaitImport(half, "50%")
	c.uninstall(t)
	p.await(half, want{ready: v1alpha1.CDINotInstalled, others: withoutCDI.others})
	p.await(m, runs)
	p.becomesOrdinary(m, claim)
	p.operator.healthy(t)
}

// TestImportsSurviveACrashAtEveryWrite: the disk is filled once, and kept, even if the operator crashes at any write.
func TestImportsSurviveACrashAtEveryWrite(t *testing.T) {
	needKubeVirt(t)
	c := startCDI(t)
	o := operation{spec: importing, fresh: true, most: 12, done: func(p *place, m *v1alpha1.Machine) error {
		return errors.Join(running(p, m), p.noImport("vm-root"))
	}}
	t.Run("with a crash", func(t *testing.T) { o.survivesCrashes(t, "import") })
	c.uninstall(t)
}

// disk returns the name of a claim, and of its DataVolume.
func (p *place) disk(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.namespace, Name: name}
}

// awaitImport waits until a Machine says how far an import is, with its VirtualMachine made and its guest not started.
func (p *place) awaitImport(m *v1alpha1.Machine, says string) {
	p.Helper()
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.ReasonCreating, says: says, others: []string{importRoot, "VirtualMachineReady=True/VMCreated"}})
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := read(p, m.Name, vmi); err == nil && vmi.Status.Phase == kubevirtv1.Running {
		p.Error("the guest runs on a disk that is not filled")
	}
}

// becomesOrdinary waits until a claim is the Machine's like any other, and fails the test if it is not the one it was.
func (p *place) becomesOrdinary(m *v1alpha1.Machine, was *corev1.PersistentVolumeClaim) {
	p.Helper()
	p.until(func() error {
		claim := get(p, was.Name, &corev1.PersistentVolumeClaim{})
		if claim.UID != was.UID || claim.DeletionTimestamp != nil {
			p.Fatalf("the claim was %s and is %s, deleted %v", was.UID, claim.UID, claim.DeletionTimestamp)
		}
		if c := metav1.GetControllerOf(claim); c == nil || c.UID != m.UID || len(claim.OwnerReferences) != 1 {
			return fmt.Errorf("the owners of the claim are %v", claim.OwnerReferences)
		}
		return p.noImport(was.Name)
	})
}

// noImport returns an error if there is a DataVolume.
func (p *place) noImport(name string) error {
	if err := read(p, name, &cdiv1.DataVolume{}); !apierrors.IsNotFound(err) {
		return errors.Join(errors.New("there is a DataVolume "+name), err)
	}
	return nil
}

func (p *place) capacity(claim, want string) error {
	c := &corev1.PersistentVolumeClaim{}
	if err := read(p, claim, c); err != nil {
		return err
	}
	if has := c.Status.Capacity[corev1.ResourceStorage]; has.String() != want {
		return fmt.Errorf("claim %s has %s", claim, has.String())
	}
	return nil
}

func importFails(p *place, c *cdi) {
	const answer = "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found"
	c.plan(p.disk("failing-root"), imported{failure: answer})
	m := p.machine("failing", importing)
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.ImportFailed, says: answer, others: []string{"StorageReady=False/ImportFailed"}})
	if m.Status.FailureReason != v1alpha1.ImportFailed {
		p.Errorf("the failure is %q", m.Status.FailureReason)
	}
	p.stays(m)
	c.plan(p.disk("failing-root"), imported{})
	p.await(m, runs)
	if m.Status.FailureReason != "" {
		p.Errorf("the failure stays: %q", m.Status.FailureMessage)
	}
}

// deletedWhileImporting deletes a Machine in the middle of an import, and others at its end, while the claim changes hands.
func deletedWhileImporting(p *place, c *cdi) {
	c.plan(p.disk("doomed-root"), imported{progress: "10%"})
	doomed := p.machine("doomed", importing)
	p.awaitImport(doomed, "10%")
	machines := []*v1alpha1.Machine{doomed}
	for i := range 5 {
		machines = append(machines, p.machine(fmt.Sprintf("brief%d", i), importing))
	}
	for _, m := range machines[1:] {
		p.until(func() error { return read(p, m.Name+"-root", &corev1.PersistentVolumeClaim{}) })
	}
	for _, m := range machines {
		p.delete(m)
	}
	for _, m := range machines {
		p.until(func() error { return gone(m.DeepCopy()) })
		p.until(func() error { return errors.Join(p.nothing(m), p.noImport(m.Name+"-root")) })
	}
}

// removedWhileImporting: half a disk is never taken for a whole one, also when its name is used again for another image.
func removedWhileImporting(p *place, c *cdi) {
	data := p.disk("vm2-data")
	c.plan(data, imported{progress: "70%"})
	m := p.machine("vm2", `{template: small, disks: [{name: root}, {name: data, size: 1Gi, source: {registry: {url: "docker://quay.io/a/b"}}}]}`)
	p.awaitImport(m, "disk data is being imported")
	both := m.Spec.DeepCopy()
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Disks = m.Spec.Disks[:1] })
	p.until(func() error {
		if n := len(p.vm(m).Spec.Template.Spec.Volumes); n != 1 {
			return fmt.Errorf("there are %d volumes", n)
		}
		return nil
	})
	p.settles()
	claim := get(p, data.Name, &corev1.PersistentVolumeClaim{})
	c.plan(data, imported{})
	p.until(func() error { return p.noImport(data.Name) })
	if now := get(p, data.Name, &corev1.PersistentVolumeClaim{}); now.UID != claim.UID || now.DeletionTimestamp != nil {
		p.Error("the claim was deleted")
	}
	change(p, m, func(m *v1alpha1.Machine) {
		m.Spec.Disks = both.DeepCopy().Disks
		m.Spec.Disks[1].Source = &v1alpha1.DiskSource{HTTP: &v1alpha1.HTTPImage{URL: "https://images.example.com/other.raw"}}
	})
	p.await(m, want{ready: v1alpha1.InvalidSpec, says: "was not imported from https://images.example.com/other.raw"})
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Disks = both.Disks[:1] })
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Disks = both.Disks })
	p.until(func() error {
		if c := metav1.GetControllerOf(get(p, data.Name, &corev1.PersistentVolumeClaim{})); c == nil || c.UID != m.UID {
			return fmt.Errorf("the controller of the claim is %v", c)
		}
		return nil
	})
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.until(func() error { return p.nothing(m) })
}

// importsLate: CDI waits for KubeVirt to choose a node, so KubeVirt must not wait for CDI.
func importsLate(p *place, _ *cdi) {
	m := p.machine("late", `{template: small, disks: [{name: root, storageClass: late, source: {http: {url: "http://images.example.com/a.img"}}}]}`)
	p.await(m, runs)
}

func importsOverNothing(p *place, _ *cdi) {
	dv := &cdiv1.DataVolume{}
	p.yaml(`{metadata: {name: taken-root}, spec: {source: {blank: {}}, pvc: {storageClassName: standard, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}`, dv)
	p.create(dv)
	p.until(func() error {
		get(p, dv.Name, dv)
		if dv.Status.Phase != cdiv1.Succeeded {
			return errors.New("it is not imported")
		}
		return nil
	})
	claim := get(p, dv.Name, &corev1.PersistentVolumeClaim{})
	m := p.machine("taken", importing)
	p.await(m, want{phase: v1alpha1.PhaseFailed, ready: v1alpha1.NameConflict})
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.untouched(dv, &cdiv1.DataVolume{})
	if now := get(p, dv.Name, &corev1.PersistentVolumeClaim{}); now.UID != claim.UID || now.DeletionTimestamp != nil || now.Labels[v1alpha1.LabelMachine] != "" {
		p.Error("the claim was touched")
	}
}

// importsOverNoClaim: a claim without labels is in no cache, and CDI may give it to a DataVolume.
func importsOverNoClaim(p *place, _ *cdi) {
	claim := &corev1.PersistentVolumeClaim{}
	p.yaml(`{metadata: {name: mine-root}, spec: {storageClassName: standard, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, claim)
	p.create(claim)
	m := p.machine("mine", importing)
	p.await(m, want{phase: v1alpha1.PhaseFailed, ready: v1alpha1.NameConflict, says: "is left alone"})
	if err := p.noImport(claim.Name); err != nil {
		p.Error(err)
	}
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.untouched(claim, &corev1.PersistentVolumeClaim{})
}

// orphanedWhileImporting: a user removes the DataVolume and keeps the claim.
func orphanedWhileImporting(p *place, c *cdi) {
	root := p.disk("torn-root")
	c.plan(root, imported{progress: "30%"})
	m := p.machine("torn", importing)
	p.awaitImport(m, "30%")
	dv := get(p, root.Name, &cdiv1.DataVolume{})
	if err := api.Delete(p.Context(), dv, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		p.Fatal(err)
	}
	p.until(func() error {
		if get(p, m.Name, m); m.Status.FailureReason != v1alpha1.InvalidSpec || !strings.Contains(m.Status.FailureMessage, "is not filled") {
			return errors.New(describe(m))
		}
		return nil
	})
	if owner := metav1.GetControllerOf(get(p, root.Name, &corev1.PersistentVolumeClaim{})); owner != nil {
		p.Errorf("half a disk has the controller %s %s", owner.Kind, owner.Name)
	}
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.until(func() error {
		return gone(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: root.Name}})
	})
}
