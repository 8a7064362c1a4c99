package vitistack

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// The keys that KubeVirt reads from a Secret, and those that references have where they name none.
const (
	UserDataKey    = "userdata"
	NetworkDataKey = "networkdata"
)

const (
	// inlineLimit is how many bytes of each kind of data KubeVirt accepts inside a VirtualMachine.
	inlineLimit = 2048
	// classicUserData is the user data of Machines in fields of vitistack/common that have none.
	classicUserData = "#cloud-config\n"
	configDrive     = "configDrive"
)

// CloudInitVolume is the name of the volume and of the disk with cloud-init data.
const CloudInitVolume = "cloudinitdisk"

// CloudInitSecret returns the name of the Secret with a Machine's cloud-init data.
func CloudInitSecret(machine string) string { return machine + "-cloudinit" }

// part is user data or network data of a spec: the first source that is set counts.
type part struct {
	field          string
	plain, encoded string
	references     []reference
	key            string
}

// reference is one way to refer to data; ref is nil where the spec does not.
type reference struct {
	configMap bool
	ref       *v1alpha1.DataReference
}

func userDataOf(c *v1alpha1.CloudInit) part {
	return part{field: "userDataBase64", plain: c.UserData, encoded: c.UserDataBase64, key: UserDataKey, references: []reference{
		{false, c.SecretRef}, {false, c.UserDataSecretRef}, {true, c.UserDataConfigMapRef},
	}}
}

func networkDataOf(c *v1alpha1.CloudInit) part {
	return part{field: "networkDataBase64", plain: c.NetworkData, encoded: c.NetworkDataBase64, key: NetworkDataKey, references: []reference{
		{false, c.NetworkDataSecretRef}, {true, c.NetworkDataConfigMapRef},
	}}
}

// source returns where the data is, nil if it is in the spec or nowhere.
func (d part) source() *Source {
	if d.plain != "" || d.encoded != "" {
		return nil
	}
	for _, r := range d.references {
		if r.ref == nil {
			continue
		}
		found := &Source{ConfigMap: r.configMap, Name: r.ref.Name, Key: r.ref.Key}
		if found.Key == "" {
			found.Key = d.key
		}
		return found
	}
	return nil
}

// SourcesOf returns the values of Secrets and ConfigMaps that a Machine needs. One that is hidden by another source of the
// same data is not needed.
func SourcesOf(m *v1alpha1.Machine) []Source {
	if m.Spec.CloudInit == nil {
		return nil
	}
	var sources []Source
	for _, d := range []part{userDataOf(m.Spec.CloudInit), networkDataOf(m.Spec.CloudInit)} {
		if s := d.source(); s != nil {
			sources = append(sources, *s)
		}
	}
	return sources
}

// cloudInit decides on the data for the guest's first boot. Data that a Secret holds is in no VirtualMachine, which more
// people may read; data that is too long for one, or no text, is not either.
func (p *plan) cloudInit() {
	spec := p.Machine.Spec.CloudInit
	if spec == nil {
		return
	}
	user, userInline := p.data(userDataOf(spec))
	network, networkInline := p.data(networkDataOf(spec))
	if len(p.unsourced) > 0 && p.keepsCopy() {
		return
	}
	for _, what := range p.unsourced {
		p.report(v1alpha1.CloudInitSourceNotFound, "%s; create it, or change spec.cloudInit", what)
	}
	if p.classic && user == nil && userDataOf(spec).source() == nil {
		user = []byte(classicUserData)
	}
	if user == nil && network == nil {
		return
	}
	p.wanted.CloudInit = &CloudInit{UserData: user, NetworkData: network, ConfigDrive: spec.Type == configDrive}
	if !userInline || !networkInline || !fitsInline(user) || !fitsInline(network) {
		p.wanted.CloudInit.Secret = CloudInitSecret(p.Machine.Name)
	}
	if total := len(user) + len(network); total > corev1.MaxSecretSize {
		p.report(v1alpha1.InvalidSpec, "the cloud-init data has %d bytes; a Secret holds at most %d", total, corev1.MaxSecretSize)
	}
}

func fitsInline(data []byte) bool { return len(data) <= inlineLimit && utf8.Valid(data) }

// data returns a part, nil if there is none, and whether it is in the spec itself. What is missing is added to unsourced.
func (p *plan) data(d part) (data []byte, inline bool) {
	if d.plain != "" {
		return []byte(d.plain), true
	}
	if d.encoded != "" {
		decoded, err := base64.StdEncoding.DecodeString(d.encoded)
		if err != nil {
			p.report(v1alpha1.InvalidSpec, "spec.cloudInit.%s is no base64: %v", d.field, err)
			return nil, true
		}
		return decoded, true
	}
	source := d.source()
	if source == nil {
		return nil, true
	}
	data, found := p.Sources[*source]
	if !found || len(data) == 0 {
		kind, what := "Secret", "not found"
		if source.ConfigMap {
			kind = "ConfigMap"
		}
		if found {
			what = "is empty"
		}
		p.unsourced = append(p.unsourced, fmt.Sprintf("key %s of %s %s/%s %s", source.Key, kind, p.Machine.Namespace, source.Name, what))
		return nil, false
	}
	return data, false
}

// keepsCopy decides that a Machine keeps the data that it has, and returns false if it has none. Its guest does not
// need the source, so one that is gone must not hold up other changes.
func (p *plan) keepsCopy() bool {
	if p.KubeVirt != Installed || p.VM == nil || p.VM.Spec.Template == nil || !p.owns(p.VM) {
		return false
	}
	volumes, secret := p.VM.Spec.Template.Spec.Volumes, CloudInitSecret(p.Machine.Name)
	i := slices.IndexFunc(volumes, func(v kubevirtv1.Volume) bool { return v.Name == CloudInitVolume && RefersTo(v, secret) })
	if i < 0 {
		return false
	}
	p.wanted.CloudInit = &CloudInit{
		Secret: secret, Kept: volumes[i].VolumeSource.DeepCopy(),
		Missing: strings.Join(p.unsourced, " and ") + ", so Secret " + secret + " is not changed",
	}
	return true
}

// RefersTo returns whether a volume has cloud-init data of a Secret.
func RefersTo(v kubevirtv1.Volume, secret string) bool {
	var source kubevirtv1.CloudInitNoCloudSource
	switch {
	case v.CloudInitNoCloud != nil:
		source = *v.CloudInitNoCloud
	case v.CloudInitConfigDrive != nil:
		source = kubevirtv1.CloudInitNoCloudSource(*v.CloudInitConfigDrive)
	}
	names := func(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name == secret }
	return names(source.UserDataSecretRef) || names(source.NetworkDataSecretRef)
}
