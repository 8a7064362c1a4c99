package cloudconfig

import (
	"encoding/base64"
	"encoding/json"
	"math/rand"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

func mustEncode(t *testing.T, c types.Config) string {
	t.Helper()
	text, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestWhatWasEncodedIsDecoded(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			data := mustRender(t, params())
			for _, half := range []types.Config{data.Public, data.Private} {
				text := mustEncode(t, half)
				if len(text) > 64<<10 {
					t.Errorf("a half has %d KiB", len(text)>>10)
				}
				raw, err := bootdata.Decode(text)
				if err != nil {
					t.Fatal(err)
				}
				got, _, err := v3_3.Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				// The comparison uses JSON, because an empty map and none are the same to Ignition.
				want, _ := json.Marshal(half)
				again, _ := json.Marshal(got)
				if diff := cmp.Diff(string(want), string(again)); diff != "" {
					t.Errorf("(-encoded +decoded):\n%s", diff)
				}
			}
		})
	}
}

func TestTooLargeBootDataIsRefusedByTheNameOfWhatIsTooLarge(t *testing.T) {
	noise := make([]byte, 1<<20)
	rand.New(rand.NewSource(1)).Read(noise)
	p := masterParams()
	pair := p.Certificates["api"]
	pair.Certificate = []byte(base64.StdEncoding.EncodeToString(noise))
	p.Certificates["api"] = pair
	_, err := Encode(mustRender(t, p).Public)
	if err == nil || !strings.Contains(err.Error(), apiServerFile) {
		t.Errorf("got error %v, want one that names %s", err, apiServerFile)
	}
}
