package vitistack_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// TestWhatBelongsToAMachine: the owner's annotation decides, and without one both labels of vitistack's operator.
func TestWhatBelongsToAMachine(t *testing.T) {
	s := plan(v1alpha1.MachineSpec{Template: "small"})
	labels := map[string]string{v1alpha1.LabelManagedBy: "kubevirt-operator", v1alpha1.LabelSourceMachine: name}
	owner := func(text string) map[string]string {
		return map[string]string{"kvm-operator.giantswarm.io/owner": text}
	}
	controller := func(kind, of string) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: "vitistack.io/v1alpha1", Kind: kind, Name: of, Controller: &yes}}
	}
	for name, test := range map[string]struct {
		object metav1.ObjectMeta
		want   bool
	}{
		"its own":                           {metav1.ObjectMeta{Annotations: owner("Machine.vitistack.io/ci/build-agent/storage")}, true},
		"of another Machine":                {metav1.ObjectMeta{Annotations: owner("Machine.vitistack.io/ci/other/storage"), Labels: labels}, false},
		"of another namespace":              {metav1.ObjectMeta{Annotations: owner("Machine.vitistack.io/other/build-agent/storage"), Labels: labels}, false},
		"of a KVMConfig of the name":        {metav1.ObjectMeta{Annotations: owner("ci/build-agent/storage"), Labels: labels}, false},
		"with an annotation that is wrong":  {metav1.ObjectMeta{Annotations: owner("x"), Labels: labels}, false},
		"of vitistack's operator":           {metav1.ObjectMeta{Labels: labels}, true},
		"with its controller":               {metav1.ObjectMeta{Labels: labels, OwnerReferences: controller("Machine", "build-agent")}, true},
		"controlled by another Machine":     {metav1.ObjectMeta{Labels: labels, OwnerReferences: controller("Machine", "other")}, false},
		"controlled by a DataVolume":        {metav1.ObjectMeta{Labels: labels, OwnerReferences: controller("DataVolume", "build-agent")}, false},
		"with one label":                    {metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelSourceMachine: name}}, false},
		"managed by another one":            {metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelManagedBy: "x", v1alpha1.LabelSourceMachine: "build-agent"}}, false},
		"with nothing":                      {metav1.ObjectMeta{}, false},
		"labelled with the Machine's label": {metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelMachine: "build-agent"}}, false},
	} {
		same(t, name, test.want, s.Owns(&test.object))
	}
	_, wayOut := vitistack.Adopts(&metav1.ObjectMeta{}, &metav1.ObjectMeta{Labels: labels}, false)
	same(t, "the way out", "hand it over with the labels vitistack.io/managed-by=kubevirt-operator and vitistack.io/source-machine=build-agent", wayOut)
}

// TestCopiesAreLeftAlone: KubeVirt copies labels and annotations to the clone of a VirtualMachine and to its claims.
func TestCopiesAreLeftAlone(t *testing.T) {
	counts := plan(v1alpha1.MachineSpec{Template: "small"}).Places().Counts
	object := func(name string, controllers ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: controllers}
	}
	own := *metav1.NewControllerRef(machineOf(v1alpha1.MachineSpec{}), v1alpha1.GroupVersion.WithKind("Machine"))
	restored, other, vm := own, own, own
	restored.UID, other.Name = "before-the-backup", "other"
	vm.APIVersion, vm.Kind = "kubevirt.io/v1", "VirtualMachine"
	for what, test := range map[string]struct {
		object client.Object
		want   bool
	}{
		"the VirtualMachine":               {&kubevirtv1.VirtualMachine{ObjectMeta: object(name, own)}, true},
		"its clone":                        {&kubevirtv1.VirtualMachine{ObjectMeta: object("clone")}, false},
		"a copy with all its metadata":     {&kubevirtv1.VirtualMachine{ObjectMeta: object("copy", own)}, false},
		"the Secret":                       {&corev1.Secret{ObjectMeta: object(name + "-cloudinit")}, true},
		"a copy of it":                     {&corev1.Secret{ObjectMeta: object("copy", own)}, false},
		"a claim":                          {&corev1.PersistentVolumeClaim{ObjectMeta: object("any", own)}, true},
		"one of before a backup":           {&corev1.PersistentVolumeClaim{ObjectMeta: object(name+"-root", restored)}, true},
		"the claim of a clone":             {&corev1.PersistentVolumeClaim{ObjectMeta: object("restore-1-root")}, false},
		"one that the clone controls":      {&corev1.PersistentVolumeClaim{ObjectMeta: object("restore-1-root", vm)}, false},
		"one that another Machine has now": {&corev1.PersistentVolumeClaim{ObjectMeta: object("restore-1-root", other)}, false},
	} {
		same(t, what, test.want, counts(test.object))
	}
}

func TestCopiesOfAnAttachmentAreLeftAlone(t *testing.T) {
	network := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "front"}}
	counts := (&vitistack.NetworkState{Network: network}).Places().Counts
	for name, want := range map[string]bool{"front": true, "copy-of-front": false} {
		same(t, name, want, counts(&multusv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
	}
}

func TestMetadata(t *testing.T) {
	o := observe(v1alpha1.MachineSpec{Template: "small"})
	o.Machine.Labels = map[string]string{v1alpha1.LabelCluster: "shop-prod", "other": "x"}
	yes := true
	same(t, "metadata", metav1.ObjectMeta{
		Namespace: namespace, Name: "build-agent-root",
		Labels: map[string]string{
			v1alpha1.LabelManagedBy: "kubevirt-operator", v1alpha1.LabelMachine: name, v1alpha1.LabelSourceMachine: name, v1alpha1.LabelCluster: "shop-prod", "a": "b",
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Name: name, UID: uid, Controller: &yes, BlockOwnerDeletion: &yes}},
	}, vitistack.Plan(o).ObjectMeta("build-agent-root", map[string]string{"a": "b"}))
}

// TestAllProblemsAreToldInOrder: one status shows all of them, and Ready has the first type of v1alpha1.ErrorTypes.
func TestAllProblemsAreToldInOrder(t *testing.T) {
	o := observe(v1alpha1.MachineSpec{
		Template:  "huge",
		Disks:     []v1alpha1.Disk{{Name: "a", Size: "1Gi", StorageClass: "gone", Boot: true}, {Name: "b", Size: "1Gi", Boot: true}},
		Networks:  []v1alpha1.Network{{Name: "eth0", NetworkName: "lan"}, {Name: "eth1", NetworkName: "san"}},
		CloudInit: &v1alpha1.CloudInit{SecretRef: &v1alpha1.DataReference{Name: "boot"}},
	})
	o.Networks = map[string]*v1alpha1.NetworkConfiguration{"san": network("san", "br1", 0, ready("False", 2))}
	o.VM = vmWith("root", "x")
	o.VM.Labels = nil
	s := vitistack.Plan(o)
	var types []string
	for _, p := range s.Problems {
		types = append(types, p.Type)
	}
	same(t, "types", []string{
		v1alpha1.TemplateNotFound, v1alpha1.NetworkConfigurationNotFound, v1alpha1.StorageClassNotFound, v1alpha1.InvalidSpec,
		v1alpha1.CloudInitSourceNotFound, v1alpha1.NetworkAttachmentFailed, v1alpha1.NameConflict,
	}, types)
	p, ok := problem.As(s.Refusal())
	if !ok || p.Reason != v1alpha1.TemplateNotFound || len(p.Message) < 300 {
		t.Errorf("the refusal is %v", s.Refusal())
	}
	p, ok = problem.As(s.NetworkRefusal())
	if !ok || p.Reason != v1alpha1.NetworkConfigurationNotFound {
		t.Errorf("the refusal of networks is %v", s.NetworkRefusal())
	}
	right := plan(v1alpha1.MachineSpec{Template: "small"})
	if err := right.Refusal(); err != nil || right.NetworkRefusal() != nil {
		t.Errorf("a Machine without problems is refused: %v", err)
	}
}

func TestProviders(t *testing.T) {
	for provider, want := range map[string]bool{"": true, "kubevirt": true, "proxmox": false, "KubeVirt": false} {
		same(t, provider, want, vitistack.Handles(machineOf(v1alpha1.MachineSpec{Provider: provider})))
	}
	same(t, "claims of an unknown template", []string(nil), vitistack.ClaimsOf(machineOf(v1alpha1.MachineSpec{Template: "huge"}), settings, nil))
}
