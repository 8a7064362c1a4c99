package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func decodeText[T any](text string, mode strictness) (T, json.RawMessage, error) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text))
	r.Header.Set(contentType, typeJSON)
	return decode[T](httptest.NewRecorder(), r, usual.body, mode)
}

func TestDecodeOptionalValues(t *testing.T) {
	got, _, err := decodeText[api.CreateRequest](`{"cpus":null,"restart":null,"allowedCidrs":null,"workdir":null,"Name":7,"ports":[{"host":1,"guest":2,"x":3}]}`, lenient)
	if diff := cmp.Diff(api.CreateRequest{Ports: []api.Port{{Host: 1, Guest: 2}}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	empty, _, err := decodeText[api.CreateRequest](`{"allowedCidrs":[]}`, lenient)
	if err != nil || empty.AllowedCIDRs == nil || len(*empty.AllowedCIDRs) != 0 {
		t.Errorf("an empty list became %v: %v", empty.AllowedCIDRs, err)
	}
}

// FuzzDecode checks that a rejection has a status of axum's, and that what is accepted has the required fields only.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"command":["true"]}`, `{"command":["a"],"env":[{"name":"A","value":"b"}],"timeoutSecs":1}`, `{"command":null}`, `[`, `{"Command":[]}`, `null`, `1 2`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, mode := range []strictness{strict, lenient} {
			_, normal, err := decodeText[api.ExecRequest](text, mode)
			var rejected rejection
			if err != nil {
				if !errors.As(err, &rejected) || rejected.status != http.StatusBadRequest && rejected.status != http.StatusUnprocessableEntity {
					t.Errorf("%q: %v", text, err)
				}
				continue
			}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(normal, &fields); err != nil || fields["command"] == nil || !json.Valid([]byte(text)) {
				t.Errorf("%q became %s: %v", text, normal, err)
			}
		}
	})
}
