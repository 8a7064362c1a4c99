package cloudconfig

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// authenticationConfiguration is apiserver.config.k8s.io/v1 AuthenticationConfiguration.
type authenticationConfiguration struct {
	APIVersion string                  `json:"apiVersion"`
	Kind       string                  `json:"kind"`
	JWT        []jwtAuthenticator      `json:"jwt"`
	Anonymous  anonymousAuthentication `json:"anonymous"`
}

type anonymousAuthentication struct {
	Enabled    bool                 `json:"enabled"`
	Conditions []anonymousCondition `json:"conditions"`
}

type anonymousCondition struct {
	Path string `json:"path"`
}

type jwtAuthenticator struct {
	Issuer        jwtIssuer   `json:"issuer"`
	ClaimMappings jwtMappings `json:"claimMappings"`
}

type jwtIssuer struct {
	URL       string   `json:"url"`
	Audiences []string `json:"audiences"`
}

type jwtMappings struct {
	Username jwtClaim  `json:"username"`
	Groups   *jwtClaim `json:"groups,omitempty"`
}

type jwtClaim struct {
	Claim string `json:"claim"`
	// Prefix is written even if empty: the API server requires it with a claim.
	Prefix string `json:"prefix"`
}

// authentication configures which users the API server accepts besides holders of its own certificates and tokens: the OIDC
// provider, if any, and anonymous clients for the three health paths, which the kubelet's and the runner's probes
// request.
func authentication(oidc v1alpha1.OIDC) authenticationConfiguration {
	config := authenticationConfiguration{
		APIVersion: "apiserver.config.k8s.io/v1", Kind: "AuthenticationConfiguration",
		JWT:       []jwtAuthenticator{},
		Anonymous: anonymousAuthentication{Enabled: true, Conditions: []anonymousCondition{{"/healthz"}, {"/livez"}, {"/readyz"}}},
	}
	if oidc.IssuerURL != "" {
		config.JWT = append(config.JWT, jwt(oidc))
	}
	return config
}

// jwt interprets the settings as the API server's flags --oidc-* do, so that a cluster's role bindings remain valid.
func jwt(oidc v1alpha1.OIDC) jwtAuthenticator {
	username := jwtClaim{Claim: oidc.UsernameClaim, Prefix: oidc.UsernamePrefix}
	if username.Claim == "" {
		username.Claim = "sub"
	}
	switch {
	case username.Prefix == "-":
		username.Prefix = ""
	case username.Prefix == "" && username.Claim != "email":
		// https://github.com/kubernetes/kubernetes/issues/31380
		username.Prefix = oidc.IssuerURL + "#"
	}
	authenticator := jwtAuthenticator{
		Issuer:        jwtIssuer{URL: oidc.IssuerURL, Audiences: []string{oidc.ClientID}},
		ClaimMappings: jwtMappings{Username: username},
	}
	if oidc.GroupsClaim != "" {
		authenticator.ClaimMappings.Groups = &jwtClaim{Claim: oidc.GroupsClaim, Prefix: oidc.GroupsPrefix}
	}
	return authenticator
}
