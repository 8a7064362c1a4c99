package nodes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// TestOnlyTheRuntimeOfTheNodeIsHeard: one that is on another node, or does not say on which, is asked for nothing.
func TestOnlyTheRuntimeOfTheNodeIsHeard(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		is     api.Identity
		want   string
	}{
		"the node":                   {200, api.Identity{NodeName: "n1", NodeUID: "uid"}, ""},
		"the node, without its UID":  {200, api.Identity{NodeName: "n1"}, ""},
		"another node":               {200, api.Identity{NodeName: "n2", NodeUID: "uid"}, `it says that it is on node "n2"`},
		"another of the same name":   {200, api.Identity{NodeName: "n1", NodeUID: "other"}, `it says that its node has the UID "other", and SmolVMNode n1 has "uid"`},
		"nothing":                    {200, api.Identity{}, `it says that it is on node ""`},
		"a runtime that cannot tell": {404, api.Identity{}, "it does not say on which node it is"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = asked || r.URL.Path != api.IdentityPath
				w.WriteHeader(test.status)
				_ = json.NewEncoder(w).Encode(test.is)
			}))
			defer server.Close()
			client, err := api.NewClient(server.URL, api.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			s := newSession(Options{Times: short, Changed: func(string, string) {}}, Node{Name: "n1", UID: "uid"}, nil)
			defer s.end()
			err = s.identify(t.Context(), client)
			if (err == nil) != (test.want == "") || asked {
				t.Fatalf("the error is %v, want %s; it was asked for more: %t", err, test.want, asked)
			}
			if err == nil {
				return
			}
			if reason, message := s.node.reasonOf(err); reason != v1alpha1.ReasonCertificateMismatch || !strings.Contains(message, test.want) {
				t.Errorf("it is %s, %s", reason, message)
			}
			s.lose(s.listen(t.Context(), client))
			if r := s.look("k8s-m"); s.heard || r.Reason != v1alpha1.ReasonCertificateMismatch {
				t.Errorf("it was heard: %t; got %+v", s.heard, r)
			}
		})
	}
}
