package cloudconfig

import (
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/bootdata"
)

// TestRenewed: of what a node keeps, the bootstrap token changes and nothing else.
func TestRenewed(t *testing.T) {
	const old, latest = "aaaaaa.0123456789abcdef", "bbbbbb.fedcba9876543210"
	private := func(change func(*Params)) string {
		p := fullParams()
		change(&p)
		rendered, err := NewRenderer().Render(p)
		if err != nil {
			t.Fatal(err)
		}
		return rendered.Private
	}
	decoded := func(text string) string {
		raw, err := bootdata.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	stored := private(func(p *Params) { p.BootstrapToken = old })
	now := private(func(p *Params) {
		p.BootstrapToken, p.EncryptionKey = latest, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	})
	renewed, err := Renewed(stored, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := decoded(renewed), strings.ReplaceAll(decoded(stored), old, latest); got != want || !strings.Contains(want, latest) {
		t.Errorf("renewed boot data is\n%s\nwant\n%s", got, want)
	}
	for name, half := range map[string]string{"no boot data": "?", "nothing": ""} {
		if _, err := Renewed(half, now); err == nil || strings.Contains(err.Error(), latest) {
			t.Errorf("%s is renewed: %v", name, err)
		}
	}
}
