package vitistack_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// told returns what was decided in one line: the length or the text of each part, and where the data is.
func told(c *vitistack.CloudInit) string {
	if c == nil {
		return "none"
	}
	part := func(data []byte) string {
		switch {
		case data == nil:
			return "-"
		case len(data) > 20:
			return fmt.Sprint(len(data))
		}
		return fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("%s %s %s %t", part(c.UserData), part(c.NetworkData), c.Secret, c.ConfigDrive)
}

func withCloudInit(c v1alpha1.CloudInit) v1alpha1.MachineSpec {
	return v1alpha1.MachineSpec{Template: "small", CloudInit: &c}
}

// TestWhereCloudInitDataIs: KubeVirt accepts 2048 bytes of each part inside a VirtualMachine.
func TestWhereCloudInitDataIs(t *testing.T) {
	length := func(n int) string { return strings.Repeat("a", n) }
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	key := &v1alpha1.DataReference{Name: "boot", Key: "cloud-config"}
	usual, other := &v1alpha1.DataReference{Name: "boot"}, &v1alpha1.DataReference{Name: "other"}
	for name, test := range map[string]struct {
		spec v1alpha1.CloudInit
		want string
	}{
		"nothing":                          {v1alpha1.CloudInit{}, "none"},
		"2048 bytes":                       {v1alpha1.CloudInit{UserData: length(2048)}, "2048 -  false"},
		"2049 bytes":                       {v1alpha1.CloudInit{UserData: length(2049)}, "2049 - build-agent-cloudinit false"},
		"2048 bytes in base64":             {v1alpha1.CloudInit{UserDataBase64: encode(length(2048))}, "2048 -  false"},
		"2049 bytes in base64":             {v1alpha1.CloudInit{UserDataBase64: encode(length(2049))}, "2049 - build-agent-cloudinit false"},
		"2048 bytes of each":               {v1alpha1.CloudInit{UserData: length(2048), NetworkData: length(2048)}, "2048 2048  false"},
		"2049 bytes for the network":       {v1alpha1.CloudInit{UserData: "u", NetworkData: length(2049)}, `"u" 2049 build-agent-cloudinit false`},
		"2049 bytes for the network alone": {v1alpha1.CloudInit{NetworkDataBase64: encode(length(2049))}, "- 2049 build-agent-cloudinit false"},
		"characters of several bytes":      {v1alpha1.CloudInit{UserData: strings.Repeat("ä", 1025)}, "2050 - build-agent-cloudinit false"},
		"no text":                          {v1alpha1.CloudInit{UserDataBase64: encode("\x1f\x8b\xff")}, `"\x1f\x8b\xff" - build-agent-cloudinit false`},
		"the network alone":                {v1alpha1.CloudInit{NetworkData: "n"}, `- "n"  false`},
		"a config drive":                   {v1alpha1.CloudInit{Type: "configDrive", UserData: "u"}, `"u" -  true`},
		"a Secret, however short":          {v1alpha1.CloudInit{SecretRef: key}, `"secret" - build-agent-cloudinit false`},
		"its usual key":                    {v1alpha1.CloudInit{SecretRef: usual}, `"usual" - build-agent-cloudinit false`},
		"the other name of the field":      {v1alpha1.CloudInit{UserDataSecretRef: usual}, `"usual" - build-agent-cloudinit false`},
		"a ConfigMap":                      {v1alpha1.CloudInit{UserDataConfigMapRef: usual}, `"map" - build-agent-cloudinit false`},
		"network data of a Secret":         {v1alpha1.CloudInit{UserData: "u", NetworkDataSecretRef: usual}, `"u" "net" build-agent-cloudinit false`},
		"network data of a ConfigMap":      {v1alpha1.CloudInit{NetworkDataConfigMapRef: usual}, `- "netmap" build-agent-cloudinit false`},
		"the text before the Secret":       {v1alpha1.CloudInit{UserData: "u", SecretRef: other}, `"u" -  false`},
		"secretRef before userDataSecretRef, and that before the ConfigMap": {
			v1alpha1.CloudInit{SecretRef: usual, UserDataSecretRef: other, UserDataConfigMapRef: other}, `"usual" - build-agent-cloudinit false`,
		},
	} {
		o := observe(withCloudInit(test.spec))
		o.Sources = map[vitistack.Source][]byte{
			{Name: "boot", Key: "cloud-config"}: []byte("secret"), {Name: "boot", Key: "userdata"}: []byte("usual"), {Name: "boot", Key: "networkdata"}: []byte("net"),
			{ConfigMap: true, Name: "boot", Key: "userdata"}: []byte("map"), {ConfigMap: true, Name: "boot", Key: "networkdata"}: []byte("netmap"),
		}
		s := vitistack.Plan(o)
		same(t, name, []any{test.want, []string(nil)}, []any{told(s.Wanted.CloudInit), said(s)})
		// What is read is enough: a plan with no other sources is the same.
		needed := map[vitistack.Source][]byte{}
		for _, source := range vitistack.SourcesOf(o.Machine) {
			needed[source] = o.Sources[source]
		}
		o.Sources = needed
		same(t, name+", with what SourcesOf names", test.want, told(vitistack.Plan(o).Wanted.CloudInit))
	}
}

func TestCloudInitDataThatIsMissing(t *testing.T) {
	usual := &v1alpha1.DataReference{Name: "boot"}
	for name, test := range map[string]struct {
		spec v1alpha1.CloudInit
		want []string
	}{
		"a Secret":    {v1alpha1.CloudInit{SecretRef: usual}, []string{"CloudInitSourceNotFound: key userdata of Secret ci/boot not found; create it, or change spec.cloudInit"}},
		"a ConfigMap": {v1alpha1.CloudInit{NetworkDataConfigMapRef: usual}, []string{"CloudInitSourceNotFound: key networkdata of ConfigMap ci/boot not found; create it, or change spec.cloudInit"}},
		"both": {v1alpha1.CloudInit{SecretRef: usual, NetworkDataSecretRef: usual}, []string{
			"CloudInitSourceNotFound: key userdata of Secret ci/boot not found; create it, or change spec.cloudInit",
			"CloudInitSourceNotFound: key networkdata of Secret ci/boot not found; create it, or change spec.cloudInit",
		}},
		"its value": {v1alpha1.CloudInit{SecretRef: &v1alpha1.DataReference{Name: "boot", Key: "empty"}}, []string{"CloudInitSourceNotFound: key empty of Secret ci/boot is empty; create it, or change spec.cloudInit"}},
		"no base64": {v1alpha1.CloudInit{UserDataBase64: "%"}, []string{"InvalidSpec: spec.cloudInit.userDataBase64 is no base64: illegal base64 data at input byte 0"}},
		"too much": {v1alpha1.CloudInit{UserDataSecretRef: &v1alpha1.DataReference{Name: "boot", Key: "big"}, NetworkData: "n"},
			[]string{"InvalidSpec: the cloud-init data has 1048577 bytes; a Secret holds at most 1048576"}},
	} {
		o := observe(withCloudInit(test.spec))
		o.Sources = map[vitistack.Source][]byte{{Name: "boot", Key: "empty"}: {}, {Name: "boot", Key: "big"}: make([]byte, 1<<20)}
		same(t, name, test.want, said(vitistack.Plan(o)))
	}
}

// TestBootDataOutlivesItsSource: a source that is gone is a problem only for what has no copy of the data.
func TestBootDataOutlivesItsSource(t *testing.T) {
	missing := []string{"CloudInitSourceNotFound: key userdata of Secret ci/boot not found; create it, or change spec.cloudInit"}
	ours := v1alpha1.LabelSourceMachine
	for name, test := range map[string]struct {
		change func(o *vitistack.Observed, v *kubevirtv1.Volume)
		want   []string
	}{
		"a VirtualMachine with the copy": {func(*vitistack.Observed, *kubevirtv1.Volume) {}, nil},
		"no VirtualMachine":              {func(o *vitistack.Observed, _ *kubevirtv1.Volume) { o.VM = nil }, missing},
		"one that is not known":          {func(o *vitistack.Observed, _ *kubevirtv1.Volume) { o.KubeVirt = vitistack.Unknown }, missing},
		"one without template":           {func(o *vitistack.Observed, _ *kubevirtv1.Volume) { o.VM.Spec.Template = nil }, missing},
		"one with its own data": {func(_ *vitistack.Observed, v *kubevirtv1.Volume) {
			v.CloudInitNoCloud = &kubevirtv1.CloudInitNoCloudSource{UserData: "u"}
		}, missing},
		"one with another Secret":            {func(_ *vitistack.Observed, v *kubevirtv1.Volume) { v.CloudInitNoCloud.UserDataSecretRef.Name = "boot" }, missing},
		"one with the copy in a user's disk": {func(_ *vitistack.Observed, v *kubevirtv1.Volume) { v.Name = "mine" }, missing},
		"another owner's": {func(o *vitistack.Observed, _ *kubevirtv1.Volume) { o.VM.Labels[ours] = "other" },
			append(slices.Clone(missing), "NameConflict: VirtualMachine ci/build-agent exists and is not this Machine's, so it is left alone; delete it, or rename the Machine")},
	} {
		o := observe(withCloudInit(v1alpha1.CloudInit{SecretRef: &v1alpha1.DataReference{Name: "boot"}}))
		o.VM = &kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}}}
		o.VM.Namespace, o.VM.Name, o.VM.Labels = namespace, o.Machine.Name, vitistack.Labels(o.Machine, settings.ManagedBy)
		volume := kubevirtv1.Volume{Name: "cloudinitdisk"}
		volume.CloudInitNoCloud = &kubevirtv1.CloudInitNoCloudSource{UserDataSecretRef: &corev1.LocalObjectReference{Name: "build-agent-cloudinit"}}
		template := o.VM.Spec.Template
		test.change(&o, &volume)
		template.Spec.Volumes = []kubevirtv1.Volume{volume}
		s := vitistack.Plan(o)
		same(t, name, test.want, said(s))
		if kept := s.Wanted.CloudInit != nil && s.Wanted.CloudInit.Kept != nil; kept != (test.want == nil) {
			t.Errorf("%s: the volume is kept: %t", name, kept)
		}
	}
}

// TestReadySaysThatASourceIsGone, and stays True.
func TestReadySaysThatASourceIsGone(t *testing.T) {
	s := state(v1alpha1.PhaseRunning, "")
	s.Observation = runningGuest
	s.Observation.RestartRequired = "cores"
	s.Wanted.CloudInit = &vitistack.CloudInit{Secret: "agent-cloudinit", Missing: "key userdata of Secret ci/boot not found, so Secret agent-cloudinit is not changed"}
	ready := meta.FindStatusCondition(vitistack.Status(s, results(nil)).Conditions, v1alpha1.ConditionReady)
	same(t, "Ready", []string{"True", "Running", "the guest runs; key userdata of Secret ci/boot not found, so Secret agent-cloudinit is not changed; RestartRequired: cores"},
		[]string{string(ready.Status), ready.Reason, ready.Message})
}

// TestClassicCloudInit: Machines in fields of vitistack/common always have user data, if they have cloudInit at all.
func TestClassicCloudInit(t *testing.T) {
	for name, test := range map[string]struct {
		spec *v1alpha1.CloudInit
		want string
	}{
		"none":         {nil, "none"},
		"an empty one": {&v1alpha1.CloudInit{}, `"#cloud-config\n" -  false`},
		"network data": {&v1alpha1.CloudInit{NetworkData: "n"}, `"#cloud-config\n" "n"  false`},
		"its own":      {&v1alpha1.CloudInit{UserData: "u"}, `"u" -  false`},
	} {
		same(t, name, test.want, told(plan(v1alpha1.MachineSpec{Provider: "kubevirt", CloudInit: test.spec}).Wanted.CloudInit))
	}
}
