package ociimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
)

// bearer is a registry that wants tokens, which it gives itself at /token (distribution, "Token Authentication").
func bearer(r *registry, granted func(request *http.Request) bool) {
	r.inject("/token", func(w http.ResponseWriter, request *http.Request, _ int) bool {
		if !granted(request) {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": "secret-token"})
		return true
	})
	r.inject("*", func(w http.ResponseWriter, request *http.Request, _ int) bool {
		if request.Header.Get("Authorization") == "Bearer secret-token" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, r.host))
		answerWith(w, http.StatusUnauthorized, "UNAUTHORIZED", "a token is needed")
		return true
	})
}

func TestTokens(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	r.push("web", simple(t), "v1")
	bearer(r, func(request *http.Request) bool {
		user, password, _ := request.BasicAuth()
		return user == "anna" && password == "right" && request.URL.Query().Get("scope") == "repository:web:pull"
	})
	for name, test := range map[string]struct {
		auth authn.AuthConfig
		ok   bool
	}{
		"right":   {authn.AuthConfig{Username: "anna", Password: "right"}, true},
		"wrong":   {authn.AuthConfig{Username: "anna", Password: "wrong"}, false},
		"a token": {authn.AuthConfig{RegistryToken: "secret-token"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCache(t, t.TempDir(), r)
			got, err := c.Get(t.Context(), r.host+"/web:v1", &test.auth)
			try(t, got.Release())
			if test.ok {
				try(t, err)
				return
			}
			refused{pull: true, status: 401, words: "401"}.check(t, r.host+"/web:v1", err)
		})
	}
}

// TestCredentialsFollowNoRedirect: what another server gets that a registry redirects to has no credentials of it.
func TestCredentialsFollowNoRedirect(t *testing.T) {
	needs(t, packer)
	i := simple(t)
	for name, protect := range map[string]func(r *registry){
		"a password": func(r *registry) { r.inject("*", basic("anna", "right")) },
		"a token":    func(r *registry) { bearer(r, func(*http.Request) bool { return true }) },
	} {
		t.Run(name, func(t *testing.T) {
			r, other := newRegistry(t), newRegistry(t)
			r.push("web", i, "v1")
			other.push("web", i, "v1")
			protect(r)
			r.inject(i.blobPath("web", 0), func(w http.ResponseWriter, request *http.Request, _ int) bool {
				if request.Header.Get("Authorization") == "" {
					return false
				}
				http.Redirect(w, request, other.URL+request.URL.Path+"?signature=hidden", http.StatusTemporaryRedirect)
				return true
			})
			c, _ := newCache(t, t.TempDir(), r, other)
			got, err := c.Get(t.Context(), r.host+"/web:v1", &authn.AuthConfig{Username: "anna", Password: "right"})
			try(t, errors.Join(err, got.Release()))
			if other.has("Authorization", "e") || other.servedOf(i.blobPath("web", 0)) == 0 {
				t.Errorf("the other server got %v", other.headers)
			}
			other.inject("*", func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(http.StatusForbidden)
				return true
			})
			c, _ = newCache(t, t.TempDir(), r, other)
			_, err = c.Get(t.Context(), r.host+"/web:v1", &authn.AuthConfig{Username: "anna", Password: "right"})
			refused{pull: true, status: 403, words: "403"}.check(t, r.host+"/web:v1", err)
			if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "right") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

// TestRefreshTokensFollowNoRedirect: they are in the body of a request, which a redirect with status 307 repeats.
func TestRefreshTokensFollowNoRedirect(t *testing.T) {
	r, other := newRegistry(t), newRegistry(t)
	bearer(r, func(*http.Request) bool { return true })
	elsewhere := strings.Replace(other.host, "127.0.0.1", "localhost", 1) // by its name it is no address of the node
	stolen := make(chan string, 10)
	other.inject("*", func(_ http.ResponseWriter, request *http.Request, _ int) bool {
		stolen <- request.FormValue("refresh_token")
		return false
	})
	r.inject("/token", func(w http.ResponseWriter, request *http.Request, _ int) bool {
		http.Redirect(w, request, "http://"+elsewhere+"/token", http.StatusTemporaryRedirect)
		return true
	})
	c, _ := newCache(t, t.TempDir(), r)
	c.Registries.Insecure = append(c.Registries.Insecure, elsewhere)
	_, err := c.Get(t.Context(), r.host+"/web:v1", &authn.AuthConfig{IdentityToken: "secret"})
	refused{pull: true, words: "credentials would go to"}.check(t, r.host+"/web:v1", err)
	select {
	case token := <-stolen:
		t.Errorf("another server got %q", token)
	default:
	}
}

// TestRedirectsLeadNowhereInside: a registry cannot make the node ask services of its own network, nor without TLS.
func TestRedirectsLeadNowhereInside(t *testing.T) {
	g := newGuard(Registries{Insecure: []string{"10.0.0.9:5000"}}, impatient.stall)
	for name, test := range map[string]struct {
		from, to string
		allowed  bool
	}{
		"another host":             {"https://a.example.org", "https://b.example.org", true},
		"the same host":            {"https://10.0.0.1", "https://10.0.0.1/x", true},
		"another port of the host": {"https://10.0.0.1", "https://10.0.0.1:8443", true},
		"an insecure registry":     {"https://a.example.org", "http://10.0.0.9:5000", true},
		"without TLS":              {"https://a.example.org", "http://b.example.org", false},
		"metadata":                 {"https://a.example.org", "https://169.254.169.254", false},
		"the node":                 {"https://a.example.org", "https://127.0.0.1:10250", false},
		"the node by name":         {"https://a.example.org", "https://localhost:10250", false},
		"the node by IPv6":         {"https://a.example.org", "https://[::1]:10250", false},
		"the node, mapped":         {"https://a.example.org", "https://[::ffff:127.0.0.1]:10250", false},
		"a private network":        {"https://a.example.org", "https://192.168.1.1", false},
		"any address":              {"https://a.example.org", "https://0.0.0.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			request := func(text string) *http.Request {
				location, err := url.Parse(text)
				try(t, err)
				return &http.Request{Method: http.MethodGet, URL: location, Header: http.Header{"Authorization": {"x"}}}
			}
			r := request(test.to)
			r.Response = &http.Response{Request: request(test.from)}
			passed, err := g.check(r)
			if (err == nil) != test.allowed || err != nil && !errors.Is(err, errRedirect) {
				t.Fatalf("the error is %v", err)
			}
			if err == nil && r.URL.Host != r.Response.Request.URL.Host && passed.Header.Get("Authorization") != "" {
				t.Error("credentials go along")
			}
		})
	}
}
