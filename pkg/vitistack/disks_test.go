package vitistack_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// lineOf returns a disk in one line.
func lineOf(d *vitistack.Disk) string {
	text := fmt.Sprintf("%s %s %s %s %s %s %s", d.Name, d.Claim, d.Size.String(), ptr.Deref(d.StorageClass, "-"), d.AccessMode, d.VolumeMode, d.Bus)
	if d.Root {
		text += " root"
	}
	return text
}

func shownAll(s *vitistack.State) []string {
	var all []string
	for i := range s.Wanted.Disks {
		all = append(all, lineOf(&s.Wanted.Disks[i]))
	}
	return all
}

// TestDisksAreMerged: all subsets of the fields of a disk that a template has, beside all subsets of two new disks,
// over every template.
func TestDisksAreMerged(t *testing.T) {
	templates := map[string][]string{"small": {"root", "20Gi"}, "medium": {"root", "40Gi"}, "large": {"root", "80Gi"}}
	states := 0
	for template, base := range templates {
		for choice := range 1 << 8 {
			states++
			spec := v1alpha1.MachineSpec{Template: template}
			size, storageClass, mode, volume, bus := base[1], "-", "ReadWriteOnce", "", "virtio"
			change := v1alpha1.Disk{Name: base[0]}
			for bit, set := range []func(){
				func() { change.Size, size = "90Gi", "90Gi" },
				func() { change.StorageClass, storageClass = "fast", "fast" },
				func() { change.AccessMode, mode = "ReadWriteMany", "ReadWriteMany" },
				func() { change.VolumeMode, volume = "Block", "Block" },
				func() { change.Type, bus = "scsi", "scsi" },
			} {
				if chosen(choice, bit) {
					set()
				}
			}
			if change != (v1alpha1.Disk{Name: base[0]}) || chosen(choice, 5) {
				spec.Disks = append(spec.Disks, change)
			}
			want := []string{strings.TrimSpace(fmt.Sprintf("root build-agent-root %s %s %s %s %s root", size, storageClass, mode, volume, bus))}
			if chosen(choice, 6) {
				spec.Disks = append([]v1alpha1.Disk{{Name: "data", Size: "1Gi"}}, spec.Disks...)
				want = append(want, "data build-agent-data 1Gi - ReadWriteOnce  virtio")
			}
			if chosen(choice, 7) {
				spec.Disks = append(spec.Disks, v1alpha1.Disk{Name: "logs", SizeGB: 3, Boot: true})
				want[0] = strings.TrimSuffix(want[0], " root")
				want = append(want, "logs build-agent-logs 3Gi - ReadWriteOnce  virtio root")
			}
			s := plan(spec)
			same(t, fmt.Sprintf("%s, choice %08b", template, choice), want, shownAll(s))
			same(t, "problems", []string(nil), said(s))
		}
	}
	t.Logf("%d states", states)
}

// TestDisks: what the subsets above do not have.
func TestDisks(t *testing.T) {
	image := &v1alpha1.DiskSource{ContainerDisk: &v1alpha1.ContainerDisk{Image: "registry.example.org/fedora"}}
	memory := v1alpha1.Resources{Memory: v1alpha1.Memory{Size: "1Gi"}}
	noSize := "InvalidSpec: disk data has no size; set its size, for example 40Gi"
	for name, test := range map[string]struct {
		spec     v1alpha1.MachineSpec
		want     []string
		problems []string
	}{
		"a template with two disks, one of them to boot from": {
			v1alpha1.MachineSpec{Template: "wide"},
			[]string{"system build-agent-system 5Gi fast ReadWriteOnce  virtio", "cache build-agent-cache 7Gi - ReadWriteOnce  virtio root"}, nil,
		},
		"the spec boots from another one": {
			v1alpha1.MachineSpec{Template: "wide", Disks: []v1alpha1.Disk{{Name: "system", Boot: true}}},
			[]string{"system build-agent-system 5Gi fast ReadWriteOnce  virtio root", "cache build-agent-cache 7Gi - ReadWriteOnce  virtio"}, nil,
		},
		"no template and no disks": {v1alpha1.MachineSpec{Resources: memory}, []string{"root build-agent-root 10Gi - ReadWriteOnce  virtio root"}, nil},
		"no template, and a disk":  {v1alpha1.MachineSpec{Resources: memory, Disks: []v1alpha1.Disk{{Name: "data", Size: "1Gi"}}}, []string{"data build-agent-data 1Gi - ReadWriteOnce  virtio root"}, nil},
		"the one called root is booted": {
			v1alpha1.MachineSpec{Resources: memory, Disks: []v1alpha1.Disk{{Name: "data", Size: "1Gi"}, {Name: "root", Size: "2Gi"}}},
			[]string{"data build-agent-data 1Gi - ReadWriteOnce  virtio", "root build-agent-root 2Gi - ReadWriteOnce  virtio root"}, nil,
		},
		"size wins over sizeGB": {v1alpha1.MachineSpec{Resources: memory, Disks: []v1alpha1.Disk{{Name: "data", Size: "1Gi", SizeGB: 9}}}, []string{"data build-agent-data 1Gi - ReadWriteOnce  virtio root"}, nil},
		"sizeGB wins over the template's size": {
			v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", SizeGB: 30}}}, []string{"root build-agent-root 30Gi - ReadWriteOnce  virtio root"}, nil,
		},
		"classic: modes of the settings": {v1alpha1.MachineSpec{Disks: []v1alpha1.Disk{{Name: "root", SizeGB: 4, Type: "sata"}}}, []string{"root build-agent-root 4Gi - ReadWriteMany Block sata root"}, nil},
		"another bus is virtio":          {v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", Type: "nvme"}}}, []string{"root build-agent-root 20Gi - ReadWriteOnce  virtio root"}, nil},
		"an image has no claim":          {v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", Source: image}}}, []string{"root  0 -   virtio root"}, nil},
		"a new disk without a size":      {v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "data"}}}, []string{"root build-agent-root 20Gi - ReadWriteOnce  virtio root", "data build-agent-data 0 - ReadWriteOnce  virtio"}, []string{noSize}},
		"two to boot from": {
			v1alpha1.MachineSpec{Resources: memory, Disks: []v1alpha1.Disk{{Name: "a", Size: "1Gi", Boot: true}, {Name: "b", Size: "1Gi", Boot: true}}},
			[]string{"a build-agent-a 1Gi - ReadWriteOnce  virtio root", "b build-agent-b 1Gi - ReadWriteOnce  virtio"},
			[]string{"InvalidSpec: disks a and b have boot: true; a Machine boots from one"},
		},
		"two of one name": {
			v1alpha1.MachineSpec{Resources: memory, Disks: []v1alpha1.Disk{{Name: "a", Size: "1Gi"}, {Name: "a", Size: "2Gi"}}},
			[]string{"a build-agent-a 1Gi - ReadWriteOnce  virtio root"}, []string{"InvalidSpec: spec.disks has two disks called a; rename one"},
		},
		"read-only on a bus that cannot": {
			v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", Type: "sata", AccessMode: "ReadOnlyMany"}}}, []string{"root build-agent-root 20Gi - ReadOnlyMany  sata root"},
			[]string{"InvalidSpec: disk root is ReadOnlyMany, and disks on the bus sata cannot be read-only; remove its type"},
		},
	} {
		s := plan(test.spec)
		same(t, name, test.want, shownAll(s))
		same(t, name+": problems", test.problems, said(s))
	}
}

// TestStorageClasses: spec §5.3, and a claim that is bound no longer needs a class.
func TestStorageClasses(t *testing.T) {
	literal, newer := class("default", false, 3), class("newer", true, 9)
	bound := claim("build-agent-root", corev1.ClaimBound, "gone")
	pending := claim("build-agent-root", corev1.ClaimPending, "gone")
	none := "StorageClassNotFound: disk root names no StorageClass and the cluster has no default one; set the disk's storageClass, or the annotation storageclass.kubernetes.io/is-default-class on a class"
	for name, test := range map[string]struct {
		disk, setting string
		classes       []storagev1.StorageClass
		claim         *corev1.PersistentVolumeClaim
		want          string
		problem       string
	}{
		"named":                             {"fast", "", []storagev1.StorageClass{fast}, nil, "fast", ""},
		"named and missing":                 {"fats", "", []storagev1.StorageClass{fast, standard}, nil, "fats", "StorageClassNotFound: StorageClass fats of disk root not found; create it, or change the disk's storageClass"},
		"default, the cluster's":            {"default", "", []storagev1.StorageClass{fast, standard}, nil, "-", ""},
		"default, a class of that name":     {"default", "", []storagev1.StorageClass{literal, standard}, nil, "default", ""},
		"default, and none":                 {"default", "", []storagev1.StorageClass{fast}, nil, "-", none},
		"left out, the cluster's":           {"", "", []storagev1.StorageClass{fast, standard, newer}, nil, "-", ""},
		"left out, and none":                {"", "", nil, nil, "-", none},
		"left out, the operator's":          {"", "fast", []storagev1.StorageClass{fast, standard}, nil, "fast", ""},
		"default, the operator's":           {"default", "fast", []storagev1.StorageClass{fast, standard}, nil, "fast", ""},
		"left out, the operator's missing":  {"", "fats", []storagev1.StorageClass{standard}, nil, "fats", "StorageClassNotFound: StorageClass fats of disk root not found; create it, or change the operator's setting STORAGE_CLASS_NAME"},
		"removed after the claim was bound": {"gone", "", nil, bound, "gone", ""},
		"removed before that":               {"gone", "", nil, pending, "gone", "StorageClassNotFound: StorageClass gone of disk root not found; create it, or change the disk's storageClass"},
	} {
		o := observe(v1alpha1.MachineSpec{Resources: v1alpha1.Resources{Memory: v1alpha1.Memory{Size: "1Gi"}}, Disks: []v1alpha1.Disk{{Name: "root", Size: "1Gi", StorageClass: test.disk}}})
		o.StorageClasses, o.Settings.StorageClass = test.classes, test.setting
		if test.claim != nil {
			o.Claims = map[string]*corev1.PersistentVolumeClaim{test.claim.Name: test.claim}
		}
		s := vitistack.Plan(o)
		same(t, name, []any{test.want, test.problem}, []any{ptr.Deref(s.Wanted.Disks[0].StorageClass, "-"), strings.Join(said(s), "; ")})
	}
	moved := observe(v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", StorageClass: "gone"}}})
	moved.VM = vmWith("root", "elsewhere")
	same(t, "a disk that a user moved to another class", []string(nil), said(vitistack.Plan(moved)))
	same(t, "the newest default counts", "newer", vitistack.DefaultClass([]storagev1.StorageClass{standard, newer, fast}))
}

// claim returns a claim of the Machine.
func claim(name string, phase corev1.PersistentVolumeClaimPhase, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: vitistack.Labels(machineOf(v1alpha1.MachineSpec{}), settings.ManagedBy)}}
	c.Spec.StorageClassName, c.Status.Phase = &class, phase
	return c
}

// vmWith returns the Machine's VirtualMachine with one volume.
func vmWith(volume, claim string) *kubevirtv1.VirtualMachine {
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: vitistack.Labels(machineOf(v1alpha1.MachineSpec{}), settings.ManagedBy)}}
	source := kubevirtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{Spec: kubevirtv1.VirtualMachineInstanceSpec{
		Volumes: []kubevirtv1.Volume{{Name: volume, VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: &source}}},
	}}
	return vm
}

// TestClaimsOfDisks: a disk that holds data is never replaced by an empty one, and an object of someone else is not
// taken.
func TestClaimsOfDisks(t *testing.T) {
	foreign := claim("build-agent-root", corev1.ClaimBound, "fast")
	foreign.Labels = nil
	foreignVM := vmWith("root", "build-agent")
	foreignVM.Labels = nil
	hollow, moved := vmWith("root", "x"), vmWith("root", "x")
	hollow.Spec.Template = nil
	moved.Spec.Template.Spec.Volumes[0].VolumeSource = kubevirtv1.VolumeSource{DataVolume: &kubevirtv1.DataVolumeSource{Name: "build-agent-moved"}}
	former := claim("build-agent", corev1.ClaimBound, "fast")
	others := former.DeepCopy()
	others.Annotations = map[string]string{ownership.Annotation: "Machine.vitistack.io/ci/build/storage"}
	for name, test := range map[string]struct {
		claim    *corev1.PersistentVolumeClaim
		vm       *kubevirtv1.VirtualMachine
		want     string
		problems []string
	}{
		"a new Machine":                               {nil, nil, "build-agent-root", nil},
		"one of vitistack's operator":                 {nil, vmWith("root", "build-agent"), "build-agent", nil},
		"one of vitistack's operator, without a VM":   {former, nil, "build-agent", nil},
		"the disk agent of the Machine build":         {others, nil, "build-agent-root", nil},
		"a disk that a user moved":                    {nil, moved, "build-agent-moved", nil},
		"a volume of another name":                    {nil, vmWith("data", "elsewhere"), "build-agent-root", nil},
		"a VirtualMachine without a template":         {nil, hollow, "build-agent-root", nil},
		"a claim of the usual name is someone else's": {foreign, nil, "build-agent-root", []string{"NameConflict: PersistentVolumeClaim ci/build-agent-root exists and is not this Machine's, so it is left alone; delete it, or name disk root otherwise"}},
		"so is the VirtualMachine":                    {nil, foreignVM, "build-agent-root", []string{"NameConflict: VirtualMachine ci/build-agent exists and is not this Machine's, so it is left alone; delete it, or rename the Machine"}},
	} {
		o := observe(v1alpha1.MachineSpec{Template: "small"})
		o.VM = test.vm
		if test.claim != nil {
			o.Claims = map[string]*corev1.PersistentVolumeClaim{test.claim.Name: test.claim}
		}
		s := vitistack.Plan(o)
		same(t, name, []any{test.want, test.problems}, []any{s.Wanted.Disks[0].Claim, said(s)})
		if test.problems == nil && test.claim == nil {
			same(t, name+": what is to be read", []string{test.want}, vitistack.ClaimsOf(o.Machine, settings, test.vm))
		}
	}
}
