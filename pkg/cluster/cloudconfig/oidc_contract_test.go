package cloudconfig

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverinstall "k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
)

// oidcCases are OIDC settings and whether an API server starts with them.
var oidcCases = map[string]struct {
	oidc v1alpha1.OIDC
	good bool
}{
	"a provider":                        {v1alpha1.OIDC{IssuerURL: "https://dex.example.org", ClientID: "k"}, true},
	"a port and a path":                 {v1alpha1.OIDC{IssuerURL: "https://dex.example.org:5556/dex", ClientID: "k"}, true},
	"an address of IPv6":                {v1alpha1.OIDC{IssuerURL: "https://[fd00::1]:5556", ClientID: "k"}, true},
	"a slash at the end":                {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/", ClientID: "k"}, true},
	"an at sign in the path":            {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/@x", ClientID: "k"}, true},
	"all claims":                        {v1alpha1.OIDC{IssuerURL: "https://dex.example.org", ClientID: "k", UsernameClaim: "email", UsernamePrefix: "-", GroupsClaim: "groups", GroupsPrefix: "oidc:"}, true},
	"the cluster's own issuer":          {v1alpha1.OIDC{IssuerURL: "https://api.ab1cd.k8s.example.org", ClientID: "k"}, false},
	"a user and a password":             {v1alpha1.OIDC{IssuerURL: "https://u:p@dex.example.org", ClientID: "k"}, false},
	"a user":                            {v1alpha1.OIDC{IssuerURL: "https://u@dex.example.org", ClientID: "k"}, false},
	"an empty user":                     {v1alpha1.OIDC{IssuerURL: "https://@dex.example.org", ClientID: "k"}, false},
	"no TLS":                            {v1alpha1.OIDC{IssuerURL: "http://dex.example.org", ClientID: "k"}, false},
	"no scheme":                         {v1alpha1.OIDC{IssuerURL: "dex.example.org", ClientID: "k"}, false},
	"a query":                           {v1alpha1.OIDC{IssuerURL: "https://dex.example.org?a=b", ClientID: "k"}, false},
	"a fragment":                        {v1alpha1.OIDC{IssuerURL: "https://dex.example.org#x", ClientID: "k"}, false},
	"a port that is none":               {v1alpha1.OIDC{IssuerURL: "https://dex.example.org:x", ClientID: "k"}, false},
	"an address that does not end":      {v1alpha1.OIDC{IssuerURL: "https://[fd00::1/x", ClientID: "k"}, false},
	"an escape that is none":            {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/%zz", ClientID: "k"}, false},
	"a port and no host":                {v1alpha1.OIDC{IssuerURL: "https://:443", ClientID: "k"}, false},
	"a double quote":                    {v1alpha1.OIDC{IssuerURL: `https://dex.example.org/"x`, ClientID: "k"}, false},
	"a single quote":                    {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/'x", ClientID: "k"}, false},
	"a backslash":                       {v1alpha1.OIDC{IssuerURL: `https://dex.example.org/\x`, ClientID: "k"}, false},
	"a variable of a shell":             {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/$(x)", ClientID: "k"}, false},
	"a line break":                      {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/\nx", ClientID: "k"}, false},
	"a control character of Latin-1":    {v1alpha1.OIDC{IssuerURL: "https://dex.example.org/\u0085x", ClientID: "k"}, false},
	"a control character in a claim":    {v1alpha1.OIDC{IssuerURL: "https://dex.example.org", ClientID: "k", UsernameClaim: "a\x7fb"}, false},
	"a control character in a prefix":   {v1alpha1.OIDC{IssuerURL: "https://dex.example.org", ClientID: "k", GroupsClaim: "g", GroupsPrefix: "a\u0085b"}, false},
	"a control character in the client": {v1alpha1.OIDC{IssuerURL: "https://dex.example.org", ClientID: "a\tb"}, false},
}

// TestOIDCThatTheAPIServerTakes: what the API server rejects at its start is rejected when it is applied and when boot
// data is rendered, both for the cluster's own setting and the operator's; and the two agree on everything.
func TestOIDCThatTheAPIServerTakes(t *testing.T) {
	definition, err := schema.New(helm.KVMConfigCRD)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for name, test := range oidcCases {
		t.Run(name, func(t *testing.T) {
			if err := apiServerTakes(t, test.oidc); err != nil {
				refused++
				if test.good {
					t.Errorf("the API server refuses it: %v", err)
				}
			}
			if err := admitted(t, definition, test.oidc); (err == nil) != test.good {
				t.Errorf("applied: %v", err)
			}
			own, setting := Params{Cluster: v1alpha1.Cluster{}}, Params{Settings: Settings{OIDC: test.oidc}}
			own.Cluster.Kubernetes.API.OIDC = &test.oidc
			for of, p := range map[string]Params{"the cluster's": own, "the operator's": setting} {
				p.Cluster.Kubernetes.API.Domain = "api.ab1cd.k8s.example.org"
				var found problems
				checkSettings(&found, p)
				if (found.err() == nil) != test.good {
					t.Errorf("%s: %v", of, found.err())
				}
			}
		})
	}
	if refused < 8 {
		t.Errorf("the API server refuses only %d of the cases: it is not asked", refused)
	}
}

// apiServerTakes parses the rendered file with the API server's own code.
func apiServerTakes(t *testing.T, oidc v1alpha1.OIDC) error {
	t.Helper()
	text, err := yaml.Marshal(authentication(oidc))
	if err != nil {
		return err // it is not even rendered
	}
	scheme := runtime.NewScheme()
	apiserverinstall.Install(scheme)
	var config apiserver.AuthenticationConfiguration
	if err := runtime.DecodeInto(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text, &config); err != nil {
		return err
	}
	return validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), &config, []string{"https://api.ab1cd.k8s.example.org"}).ToAggregate()
}

// admitted validates against the schema of the CustomResourceDefinition.
func admitted(t *testing.T, definition *schema.Schema, oidc v1alpha1.OIDC) error {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(minimalConfig), &object); err != nil {
		t.Fatal(err)
	}
	own, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&oidc)
	if err != nil {
		t.Fatal(err)
	}
	at := object
	for _, field := range []string{"spec", "cluster", "kubernetes", "api"} {
		at = at[field].(map[string]any)
	}
	at["oidc"] = own
	return definition.Complete(t.Context(), object)
}

const minimalConfig = `
apiVersion: provider.giantswarm.io/v1alpha1
kind: KVMConfig
metadata: {name: ab1cd, namespace: default}
spec:
  cluster:
    id: ab1cd
    customer: {id: acme}
    kubernetes: {api: {domain: api.ab1cd.k8s.example.org}}
    masters: [{id: m0aaa}]
    workers: [{id: w0aaa}]
  kvm:
    masters: [{cpus: 2, memory: 8G}]
    workers: [{cpus: 2, memory: 8G}]
`
