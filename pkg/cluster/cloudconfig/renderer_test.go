package cloudconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// TestStoredBootDataIsUsedAgain: only what is the same, whatever packed it; everything else is rendered.
func TestStoredBootDataIsUsedAgain(t *testing.T) {
	p := fullParams()
	fresh, err := NewRenderer().Render(p, Halves{})
	if err != nil {
		t.Fatal(err)
	}
	packed := Halves{Public: repacked(t, fresh.Public), Private: repacked(t, fresh.Private)}
	if packed == fresh.Halves {
		t.Fatal("another level of compression gives the same text")
	}
	for name, test := range map[string]struct{ stored, want Halves }{
		"nothing":            {Halves{}, fresh.Halves},
		"the same":           {fresh.Halves, fresh.Halves},
		"packed differently": {packed, packed},
		"half of it":         {Halves{Public: packed.Public}, fresh.Halves},
		"halves swapped":     {Halves{Public: packed.Private, Private: packed.Public}, fresh.Halves},
		"no boot data":       {Halves{Public: "?", Private: "?"}, fresh.Halves},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := NewRenderer().Render(p, test.stored)
			if err != nil || rendered.Halves != test.want || rendered.Hash != fresh.Hash {
				t.Errorf("stored boot data is %v, want it used again: %v; error %v", rendered.Halves == test.stored, test.want == test.stored, err)
			}
		})
	}
}

// TestRendererKeepsNoTextThatIsStored: the text is in the cache of objects then, and is rendered again if it is lost there.
func TestRendererKeepsNoTextThatIsStored(t *testing.T) {
	p, r := fullParams(), NewRenderer()
	fingerprint, err := fingerprintOf(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name         string
		store, keeps bool
	}{
		{"before it is stored", false, true}, {"again", false, true}, {"when it is stored", true, false}, {"later", true, false},
		{"after it was deleted", false, true},
	} {
		var stored Halves
		if step.store {
			stored = mustRenderAll(t, NewRenderer(), p, Halves{}).Halves
		}
		rendered := mustRenderAll(t, r, p, stored)
		if rendered != mustRenderAll(t, NewRenderer(), p, Halves{}) {
			t.Errorf("%s, boot data is not the same", step.name)
		}
		if _, keeps := r.rendered.Get(fingerprint); keeps != step.keeps {
			t.Errorf("%s, the text is kept: %v, want %v", step.name, keeps, step.keeps)
		}
	}
}

func mustRenderAll(t *testing.T, r *Renderer, p Params, stored Halves) Rendered {
	t.Helper()
	rendered, err := r.Render(p, stored)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// repacked compresses boot data at another level.
func repacked(t *testing.T, text string) string {
	t.Helper()
	raw, err := bootdata.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}
