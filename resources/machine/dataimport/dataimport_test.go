package dataimport_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/dataimport"
)

func observed(disks ...v1alpha1.Disk) vitistack.Observed {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}, Spec: v1alpha1.MachineSpec{Template: "small", Disks: disks}}
	class := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}}
	return vitistack.Observed{Machine: m, KubeVirt: vitistack.Installed, CDI: vitistack.Installed, StorageClasses: []storagev1.StorageClass{class}, Settings: vitistack.Settings{ManagedBy: "kubevirt-operator"}}
}

func web() v1alpha1.Disk {
	return v1alpha1.Disk{Name: "root", Source: &v1alpha1.DiskSource{HTTP: &v1alpha1.HTTPImage{
		URL: "https://a/b", SecretRef: &v1alpha1.ObjectReference{Name: "s"}, CertConfigMapRef: &v1alpha1.ObjectReference{Name: "c"},
	}}}
}

func registry() v1alpha1.Disk {
	return v1alpha1.Disk{Name: "data", Size: "1Gi", Source: &v1alpha1.DiskSource{Registry: &v1alpha1.RegistryImage{URL: "docker://a/b"}}}
}

// its is a DataVolume of the Machine.
func its(name string, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	o := observed()
	s := &vitistack.State{Observed: o}
	dv := &cdiv1.DataVolume{ObjectMeta: s.ObjectMeta(name, nil), Status: cdiv1.DataVolumeStatus{Phase: phase}}
	dv.Annotations = (&vitistack.Disk{Claim: name}).ImportAnnotations()
	apply.SetOwner(dv, s.Owner(dataimport.Name))
	return dv
}

func TestWhatIsMade(t *testing.T) {
	by := func(o vitistack.Observed, change func(*vitistack.Observed)) vitistack.Observed {
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		observed vitistack.Observed
		made     []string
		waits    bool
	}{
		"nothing for an empty disk":                            {observed(), nil, false},
		"one for each disk":                                    {observed(web(), registry()), []string{"a-root", "a-data"}, true},
		"none while it is not known which claim the guest has": {by(observed(web()), func(o *vitistack.Observed) { o.KubeVirt = vitistack.Unknown }), nil, true},
		"the first ones without KubeVirt":                      {by(observed(web()), func(o *vitistack.Observed) { o.KubeVirt = vitistack.Absent }), []string{"a-root"}, true},
		"one that exists is not changed": {by(observed(web()), func(o *vitistack.Observed) {
			o.Imports = map[string]*cdiv1.DataVolume{"a-root": its("a-root", cdiv1.ImportInProgress)}
		}), nil, true},
		"one whose disk was removed stays": {by(observed(), func(o *vitistack.Observed) {
			o.Imports = map[string]*cdiv1.DataVolume{"a-old": its("a-old", cdiv1.ImportInProgress)}
		}), nil, false},
		"nothing while there is a problem": {by(observed(web()), func(o *vitistack.Observed) { o.Machine.Spec.Template = "huge" }), nil, false},
	} {
		desired, _ := dataimport.Resource().Build(vitistack.Plan(test.observed))
		var made []string
		for _, object := range desired.Objects {
			made = append(made, object.GetName())
		}
		if diff := cmp.Diff([]any{test.made, test.waits}, []any{made, desired.Wait != nil}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSources: Secrets and ConfigMaps are named, so they are those of the namespace of the DataVolume.
func TestSources(t *testing.T) {
	secured := registry()
	secured.Name, secured.Source.Registry.SecretRef, secured.Source.Registry.CertConfigMapRef = "more", &v1alpha1.ObjectReference{Name: "s"}, &v1alpha1.ObjectReference{Name: "c"}
	desired, err := dataimport.Resource().Build(vitistack.Plan(observed(web(), registry(), secured)))
	if err != nil {
		t.Fatal(err)
	}
	want := []*cdiv1.DataVolumeSource{
		{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://a/b", SecretRef: "s", CertConfigMap: "c"}},
		{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://a/b")}},
		{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://a/b"), SecretRef: ptr.To("s"), CertConfigMap: ptr.To("c")}},
	}
	for i, object := range desired.Objects {
		dv := object.(*cdiv1.DataVolume)
		if diff := cmp.Diff(want[i], dv.Spec.Source); diff != "" || dv.Namespace != "ci" {
			t.Errorf("disk %d of namespace %s (-want +got):\n%s", i, dv.Namespace, diff)
		}
	}
}

// TestWithoutCDI: what is said and done where there is no engine.
func TestWithoutCDI(t *testing.T) {
	h := dataimport.New(func(*vitistack.State) *apply.Engine { return nil })
	for name, test := range map[string]struct {
		disks            []v1alpha1.Disk
		cdi              vitistack.KubeVirt
		reason           string
		created, deleted chain.State
	}{
		"nothing to import, and CDI is absent":  {nil, vitistack.Absent, "", chain.StateNotConfigured, chain.StateDone},
		"nothing to import, and CDI is unknown": {nil, vitistack.Unknown, "", chain.StateNotConfigured, chain.StateDone},
		"an import, and CDI is absent":          {[]v1alpha1.Disk{web()}, vitistack.Absent, v1alpha1.CDINotInstalled, chain.StateWaiting, chain.StateDone},
		"an import, and CDI is unknown":         {[]v1alpha1.Disk{web()}, vitistack.Unknown, "", chain.StateWaiting, chain.StateWaiting},
	} {
		o := observed(test.disks...)
		o.CDI = test.cdi
		s := vitistack.Plan(o)
		outcome, err := h.EnsureCreated(t.Context(), s)
		reason := ""
		if p, ok := problem.As(err); ok {
			reason = p.Reason
		}
		deletion, deleteErr := h.EnsureDeleted(t.Context(), s)
		if reason != test.reason || err == nil && outcome.State != test.created || deletion.State != test.deleted || deleteErr != nil {
			t.Errorf("%s: %s", name, fmt.Sprint(outcome, err, deletion, deleteErr))
		}
	}
}
