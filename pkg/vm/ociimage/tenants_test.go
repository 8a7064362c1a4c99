package ociimage

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// private is a registry that asks for a password, with an image that anna has pulled to a cache.
type private struct {
	*registry
	cache  *Cache
	image  image
	digest string
	// manifest is what the registry has under the digest.
	manifest []byte
	// mallory is a registry of another tenant.
	mallory *registry
}

func newPrivate(t *testing.T) private {
	t.Helper()
	r, mallory := newRegistry(t), newRegistry(t)
	p := private{registry: r, mallory: mallory, image: simple(t)}
	p.digest, _ = r.push("team/web", p.image, "v1")
	p.image.manifest = func(m *v1.Manifest) { m.Annotations = map[string]string{"of": "mallory"} }
	answer, err := http.Get(r.URL + "/v2/team/web/manifests/v1")
	try(t, err)
	p.manifest, err = io.ReadAll(answer.Body)
	try(t, errors.Join(err, answer.Body.Close()))
	r.inject("*", basic("anna", "right"))
	p.cache, _ = newCache(t, t.TempDir(), r, mallory)
	p.get(t)
	r.log()
	return p
}

// get gets the image as anna.
func (p private) get(t *testing.T) {
	t.Helper()
	got, err := p.cache.Get(t.Context(), p.host+"/team/web:v1", &authn.AuthConfig{Username: "anna", Password: "right"})
	try(t, errors.Join(err, got.Release()))
}

// lacks makes mallory's registry serve everything that was pushed but blobs, as one does that has only a manifest.
func (p private) lacks(t *testing.T) {
	t.Helper()
	p.mallory.inject("*", func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if !strings.Contains(r.URL.Path, "/blobs/sha256:") {
			return false
		}
		answerWith(w, http.StatusNotFound, "BLOB_UNKNOWN", "no such blob")
		return true
	})
}

// TestAManifestIsNoProofOfItsLayers: a tenant who knows digests, or a whole manifest, of another tenant's image serves them
// from their own registry. That gives them no layer that they do not have.
func TestAManifestIsNoProofOfItsLayers(t *testing.T) {
	needs(t, packer)
	for name, push := range map[string]func(p private) string{
		"the same manifest, by tag": func(p private) string {
			p.mallory.putManifest("evil", "application/vnd.oci.image.manifest.v1+json", p.manifest, "v1")
			return "/evil:v1"
		},
		"the same manifest, by digest": func(p private) string {
			p.mallory.putManifest("evil", "application/vnd.oci.image.manifest.v1+json", p.manifest)
			return "/evil@" + p.digest
		},
		"another image with the same layers": func(p private) string {
			p.mallory.push("evil", p.image, "v1")
			return "/evil:v1"
		},
	} {
		for who, auth := range map[string]*authn.AuthConfig{"without credentials": nil, "with their own": {Username: "mallory", Password: "own"}} {
			t.Run(name+" "+who, func(t *testing.T) {
				p := newPrivate(t)
				reference := p.mallory.host + push(p)
				p.lacks(t)
				got, err := p.cache.Get(t.Context(), reference, auth)
				try(t, got.Release())
				var failed *PullError
				if !errors.As(err, &failed) || failed.Status != http.StatusNotFound {
					t.Errorf("the image of another tenant: %v", err)
				}
				requireNothingHalf(t, p.cache.Directory)
				p.get(t)
				if requests := p.log(); len(requests) != 1 {
					t.Errorf("its owner asked for %v, want one manifest", requests)
				}
			})
		}
	}
}

// TestNoBlobHasTheSlotOfAnotherRepository: the text whose sum names the slot of a private blob is pushed as a blob, by a
// manifest that says it is as long as the private one.
func TestNoBlobHasTheSlotOfAnotherRepository(t *testing.T) {
	needs(t, packer)
	p := newPrivate(t)
	var m v1.Manifest
	try(t, json.Unmarshal(p.manifest, &m))
	for _, d := range append(m.Layers, m.Config) {
		text := p.host + "/team/web " + d.Digest.String()
		p.mallory.putBlob("evil", []byte(text))
		p.manifest = bytes.ReplaceAll(p.manifest, []byte(d.Digest.String()), []byte(digestOf([]byte(text))))
	}
	p.mallory.putManifest("evil", m.MediaType, p.manifest, "v1")
	got, err := p.cache.Get(t.Context(), p.mallory.host+"/evil:v1", nil)
	try(t, got.Release())
	var failed *PullError
	if !errors.As(err, &failed) || !errors.Is(err, errMismatch) {
		t.Errorf("the image of another tenant: %v", err)
	}
	try(t, p.cache.Prune(t.Context(), 0))
	if left := slotsOf(t, p.cache, blobsName) - slotsOf(t, p.cache, imagesName); left != 0 {
		t.Errorf("%d blobs are left, want none", left)
	}
}

// TestAPartOfALayerIsNotGoneOnWith: a download that broke off is not completed by another tenant's registry, which would
// need no more than the rest of it.
func TestAPartOfALayerIsNotGoneOnWith(t *testing.T) {
	needs(t, packer)
	p := newPrivate(t)
	p.mallory.push("evil", p.image, "v1")
	blobs, err := filepath.Glob(filepath.Join(p.cache.Directory, blobsName, "*", blobName))
	try(t, err)
	for _, blob := range blobs { // as if they had broken off before the last byte
		info, err := os.Stat(blob)
		try(t, err)
		try(t, errors.Join(os.Truncate(blob, info.Size()-1), os.Rename(blob, filepath.Join(filepath.Dir(blob), partName))))
	}
	get(t, p.cache, p.mallory.host+"/evil:v1")
	if requests := p.mallory.log(); slices.ContainsFunc(requests, func(line string) bool { return strings.Contains(line, "bytes=") }) || len(blobs) != 3 {
		t.Errorf("of %d parts, the rest was asked for: %v", len(blobs), requests)
	}
}

// TestWhoHasTheLayersHasTheImage: an image that another repository really has is downloaded once, and not made again.
func TestWhoHasTheLayersHasTheImage(t *testing.T) {
	needs(t, packer, "unsquashfs")
	p := newPrivate(t)
	p.image.manifest = nil
	if digest, _ := p.mallory.push("copy", p.image, "v1"); digest != p.digest {
		t.Fatalf("the copy has the digest %s, want %s", digest, p.digest)
	}
	for n, want := range []int{5, 1} { // HEAD and GET of the manifest, and three blobs; then HEAD alone
		requireFile(t, get(t, p.cache, p.mallory.host+"/copy:v1"), "etc/name", "upper")
		if requests := p.mallory.log(); len(requests) != want {
			t.Errorf("%d: requests %v, want %d", n, requests, want)
		}
	}
}

// TestTenantsOfARepositoryShareItsLayers: the registry has just allowed the second one to have the manifest.
func TestTenantsOfARepositoryShareItsLayers(t *testing.T) {
	needs(t, packer)
	p := newPrivate(t)
	p.inject("*", basic("bob", "own"))
	other := image{layers: []part{p.image.layers[0], gzipped(archiveOf(t, "own=1"))}}
	p.push("team/web", other, "v2")
	got, err := p.cache.Get(t.Context(), p.host+"/team/web:v2", &authn.AuthConfig{Username: "bob", Password: "own"})
	try(t, errors.Join(err, got.Release()))
	if requests := p.log(); slices.Contains(requests, "GET "+p.image.blobPath("team/web", 0)) || len(requests) != 4 {
		t.Errorf("requests %v, want two of manifests, one of a configuration and one of a layer", requests)
	}
}

// TestWordsOfARegistryRepeatNoCredentials: its errors become messages that more people read than the Secret, or than the
// configuration of the node.
func TestWordsOfARegistryRepeatNoCredentials(t *testing.T) {
	auth := authn.AuthConfig{Username: "anna", Password: `a "right"&long password`}
	for whose, pull := range map[string]*authn.AuthConfig{"of one pull": &auth, "of the node": nil} {
		t.Run(whose, func(t *testing.T) {
			r := newRegistry(t)
			r.inject("*", repeating)
			c, lines := newCache(t, t.TempDir(), r)
			c.Registries.Mirrors = map[string][]string{r.host: {r.host + "/mirror"}}
			if pull == nil {
				c.Registries.Keychain = sameForAll(auth)
			}
			_, err := c.Get(t.Context(), r.host+"/web:v1", pull)
			said := strings.Join(append(lines.lines, err.Error()), "\n")
			if !strings.Contains(said, "who is Basic … with …, …, …, …") {
				t.Errorf("the words of the registry are not repeated: %s", said)
			}
			for _, secret := range forms(&auth) {
				if strings.Contains(said, secret) {
					t.Errorf("%q is repeated: %s", secret, said)
				}
			}
		})
	}
	if hidden := forms(&authn.AuthConfig{}); len(hidden) > 0 {
		t.Errorf("where there are no credentials, %q is hidden", hidden)
	}
}

// TestEntriesOfAKeychainAreForTheirPaths: an entry of a node for some images of a registry is not for those of other teams.
func TestEntriesOfAKeychainAreForTheirPaths(t *testing.T) {
	auths := map[string]any{}
	for key, user := range map[string]string{
		"r.example.org/team": "team", "r.example.org/team/web": "web", "https://other.example.org:5000/v2/": "other", "https://url.example.org/team/": "url",
		"both.example.org": "both", "both.example.org/team": "team of both", "https://index.docker.io/v1/": "docker",
	} {
		auths[key] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":p"))}
	}
	directory := t.TempDir()
	text, err := json.Marshal(map[string]any{"auths": auths})
	try(t, errors.Join(err, os.WriteFile(filepath.Join(directory, "config.json"), text, 0o600)))
	for repository, want := range map[string]string{
		"r.example.org/team/db": "team", "r.example.org/team": "team", "r.example.org/team/web": "web", "r.example.org/team/web/x": "web",
		"r.example.org/teams/web": "", "r.example.org/web": "", "other.example.org:5000/web": "other", "other.example.org/web": "",
		"url.example.org/team/web": "url", "url.example.org/web": "", "both.example.org/web": "both", "both.example.org/team/web": "team of both",
		"alpine": "docker", "docker.io/team/web": "docker", "r.example.org.evil.example/team": "",
	} {
		target, err := name.NewRepository(repository)
		try(t, err)
		found, err := Keychain(directory).Resolve(target)
		try(t, err)
		auth, err := found.Authorization()
		try(t, err)
		if auth.Username != want {
			t.Errorf("%s gets the credentials of %q, want those of %q", repository, auth.Username, want)
		}
	}
}

// sameForAll is a keychain that has the same credentials for all registries.
type sameForAll authn.AuthConfig

// Resolve implements authn.Keychain.
func (k sameForAll) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig(k)), nil
}

// repeating is a fault: it refuses with the credentials that it got, in the forms that errors may have.
func repeating(w http.ResponseWriter, request *http.Request, _ int) bool {
	header := request.Header.Get("Authorization")
	if header == "" {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	}
	_, password, _ := request.BasicAuth()
	inJSON, _ := json.Marshal(password)
	answerWith(w, http.StatusUnauthorized, "UNAUTHORIZED", "who is "+header+" with "+strings.Join([]string{
		password, url.QueryEscape(password), url.PathEscape(password), strings.Trim(string(inJSON), `"`),
	}, ", "))
	return true
}
