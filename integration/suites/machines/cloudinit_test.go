package machines_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// source returns the cloud-init volume of a Machine.
func (p *place) source(m *v1alpha1.Machine) *kubevirtv1.CloudInitNoCloudSource {
	p.Helper()
	for _, v := range p.vm(m).Spec.Template.Spec.Volumes {
		if v.Name == "cloudinitdisk" {
			return v.CloudInitNoCloud
		}
	}
	p.Fatalf("there is no volume cloudinitdisk in %s", volumesOf(p.vm(m)))
	return nil
}

// TestBootDataTakesTheWayThatKubeVirtAllows is scenario 14: inline, too long to be inline, and from a Secret with a key of
// its own.
func TestBootDataTakesTheWayThatKubeVirtAllows(t *testing.T) {
	p := together(t)
	p.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "bootstrap"},
		StringData: map[string]string{"cloud-config": "#cloud-config\nhostname: secret\n"},
	})
	long := "#cloud-config\n# " + strings.Repeat("x", 2048)
	inline := p.machine("inline", `{template: small, cloudInit: {userData: "#cloud-config\n", networkData: "version: 2\n"}}`)
	big := p.machine("big", "{template: small}", func(m *v1alpha1.Machine) { m.Spec.CloudInit = &v1alpha1.CloudInit{UserData: long} })
	secret := p.machine("secret", "{template: small, cloudInit: {secretRef: {name: bootstrap, key: cloud-config}}}")
	for _, m := range []*v1alpha1.Machine{inline, big, secret} {
		p.await(m, runs)
	}
	if s := p.source(inline); s == nil || s.UserData != "#cloud-config\n" || s.NetworkData != "version: 2\n" {
		t.Errorf("inline data is %+v", s)
	}
	for m, data := range map[*v1alpha1.Machine]string{big: long, secret: "#cloud-config\nhostname: secret\n"} {
		s := p.source(m)
		if s == nil || s.UserDataSecretRef == nil || s.UserDataSecretRef.Name != m.Name+"-cloudinit" || s.UserData != "" {
			t.Errorf("the data of %s is %+v", m.Name, s)
			continue
		}
		copied := get(p, m.Name+"-cloudinit", &corev1.Secret{})
		if got := string(copied.Data["userdata"]); got != data {
			t.Errorf("the Secret of %s has %q", m.Name, got)
		}
	}
	p.stays(inline, big, secret)
	p.delete(big)
	p.until(func() error { return gone(big.DeepCopy()) })
	p.until(func() error {
		return gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "big-cloudinit"}})
	})
}

// TestAMissingSourceOfBootDataIsWaitedFor is the last part of scenario 14: first the Secret is missing, then its key.
func TestAMissingSourceOfBootDataIsWaitedFor(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small, cloudInit: {secretRef: {name: bootstrap, key: cloud-config}}}")
	pending := want{phase: v1alpha1.PhasePending, ready: v1alpha1.CloudInitSourceNotFound, says: "bootstrap"}
	p.await(m, pending)
	p.stays(m)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "bootstrap"}, StringData: map[string]string{"other": "x"}}
	p.create(secret)
	pending.says = "cloud-config"
	p.await(m, pending)
	if err := p.nothing(m); err != nil {
		t.Error(err)
	}
	change(p, secret, func(s *corev1.Secret) { s.StringData = map[string]string{"cloud-config": "#cloud-config\n"} })
	p.await(m, runs)
	// New data reaches the Secret of the guest, which is not restarted.
	uid := p.vmi(m).UID
	change(p, secret, func(s *corev1.Secret) { s.StringData = map[string]string{"cloud-config": "#cloud-config\n# 2\n"} })
	p.until(func() error {
		if got := get(p, "vm-cloudinit", &corev1.Secret{}).Data["userdata"]; string(got) != "#cloud-config\n# 2\n" {
			return fmt.Errorf("the Secret has %q", got)
		}
		return nil
	})
	if p.vmi(m).UID != uid {
		t.Error("the guest was replaced")
	}
}
