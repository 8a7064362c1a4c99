package cloudconfig

import (
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// TestWithToken: only the bootstrap token in a node's stored boot data changes.
func TestWithToken(t *testing.T) {
	const old, latest = "aaaaaa.0123456789abcdef", "bbbbbb.fedcba9876543210"
	private := func(change func(*Params)) string {
		p := fullParams()
		change(&p)
		rendered, err := NewRenderer().Render(p, Halves{})
		if err != nil {
			t.Fatal(err)
		}
		return rendered.Private
	}
	decoded := func(text string) string { return decodedHalf(t, text) }
	stored := private(func(p *Params) { p.BootstrapToken = old })
	now := private(func(p *Params) {
		p.BootstrapToken, p.EncryptionKey = latest, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	})
	renewed, err := WithToken(stored, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := decoded(renewed), strings.ReplaceAll(decoded(stored), old, latest); got != want || !strings.Contains(want, latest) {
		t.Errorf("renewed boot data is\n%s\nwant\n%s", got, want)
	}
	for name, half := range map[string]string{"no boot data": "?", "nothing": ""} {
		if _, err := WithToken(half, now); err == nil || strings.Contains(err.Error(), latest) {
			t.Errorf("%s is renewed: %v", name, err)
		}
	}
}

func decodedHalf(t *testing.T, text string) string {
	t.Helper()
	raw, err := bootdata.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestWithoutFoundingToken: only the permission to start with an empty disk is removed from a master's stored boot
// data.
func TestWithoutFoundingToken(t *testing.T) {
	for name, test := range map[string]struct {
		params       Params
		token, state string
	}{
		"a founder":           {masterParams(), EtcdFounding + "1234", EtcdNew},
		"one that has joined": {masterParams(), "8e9e05c52164694d", EtcdExisting},
		"one without":         {masterParams(), "", EtcdExisting},
		"a worker":            {workerParams(), "", EtcdNew},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.params
			p.EtcdState, p.EtcdFoundingToken = test.state, test.token
			rendered, err := NewRenderer().Render(p, Halves{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := WithoutFoundingToken(rendered.Public)
			if err != nil {
				t.Fatal(err)
			}
			want := decodedHalf(t, rendered.Public)
			if test.token != "" {
				want = strings.Replace(want, "TICKET="+test.token, "TICKET=", 1)
			} else if got != rendered.Public {
				t.Error("it is another text")
			}
			if decodedHalf(t, got) != want {
				t.Errorf("it is\n%s\nwant\n%s", decodedHalf(t, got), want)
			}
		})
	}
}
