package cloudconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

func TestSignOn(t *testing.T) {
	const issuer, client = "https://dex.example.com", "kubernetes"
	for name, test := range map[string]struct {
		settings v1alpha1.OIDC
		own      *v1alpha1.OIDC
		want     []jwtAuthenticator
	}{
		"none": {want: []jwtAuthenticator{}},
		"issuer and client alone give exactly these": {
			settings: v1alpha1.OIDC{IssuerURL: issuer, ClientID: client},
			want:     wantJWT(issuer, client, jwtClaim{"sub", issuer + "#"}, nil),
		},
		"a prefix that ends in a colon is valid YAML": {
			settings: v1alpha1.OIDC{
				IssuerURL: issuer, ClientID: client, UsernameClaim: "name", UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "a: b #c",
			},
			want: wantJWT(issuer, client, jwtClaim{"name", "oidc:"}, &jwtClaim{"groups", "a: b #c"}),
		},
		"email needs no prefix": {
			settings: v1alpha1.OIDC{IssuerURL: issuer, ClientID: client, UsernameClaim: "email"},
			want:     wantJWT(issuer, client, jwtClaim{"email", ""}, nil),
		},
		"a dash means no prefix": {
			settings: v1alpha1.OIDC{IssuerURL: issuer, ClientID: client, UsernameClaim: "name", UsernamePrefix: "-"},
			want:     wantJWT(issuer, client, jwtClaim{"name", ""}, nil),
		},
		"the cluster's own wins as a whole": {
			settings: v1alpha1.OIDC{IssuerURL: issuer, ClientID: client, GroupsClaim: "groups"},
			own:      &v1alpha1.OIDC{IssuerURL: "https://own.example.com", ClientID: "own"},
			want:     wantJWT("https://own.example.com", "own", jwtClaim{"sub", "https://own.example.com#"}, nil),
		},
		"a cluster may have none": {
			settings: v1alpha1.OIDC{IssuerURL: issuer, ClientID: client},
			own:      &v1alpha1.OIDC{},
			want:     []jwtAuthenticator{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := masterParams()
			p.Settings.OIDC, p.Cluster.Kubernetes.API.OIDC = test.settings, test.own
			var got authenticationConfiguration
			text := fileContent(t, mustRender(t, p), authenticationFile)
			if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.JWT); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			anonymous := anonymousAuthentication{Enabled: true, Conditions: []anonymousCondition{{"/healthz"}, {"/livez"}, {"/readyz"}}}
			if diff := cmp.Diff(anonymous, got.Anonymous); diff != "" {
				t.Errorf("anonymous (-want +got):\n%s", diff)
			}
		})
	}
}

func wantJWT(issuer, client string, username jwtClaim, groups *jwtClaim) []jwtAuthenticator {
	return []jwtAuthenticator{{
		Issuer:        jwtIssuer{URL: issuer, Audiences: []string{client}},
		ClaimMappings: jwtMappings{Username: username, Groups: groups},
	}}
}
