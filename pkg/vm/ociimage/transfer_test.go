package ociimage

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
)

// large is an image whose first layer comes in more than one piece.
func large(t testing.TB) image {
	return image{layers: []part{raw(archiveOf(t, "data="+noise(1, 3<<20))), gzipped(archiveOf(t, "etc/name=upper"))}}
}

// TestDownloadsGoOnWhereTheyBroke, and begin from the start where that does not work.
func TestDownloadsGoOnWhereTheyBroke(t *testing.T) {
	needs(t, packer, "unsquashfs")
	i := large(t)
	blob, path := i.layers[0].blob, i.blobPath("web", 0)
	const half = 1 << 20
	rest := fmt.Sprintf(" bytes=%d-%d", half, len(blob)-1)
	first := func(then fault) fault {
		return func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 1 {
				return cut(w, blob, half)
			}
			return then != nil && then(w, r, n)
		}
	}
	once := func(by fault) fault {
		return func(w http.ResponseWriter, r *http.Request, n int) bool { return n == 2 && by(w, r, n) }
	}
	for name, test := range map[string]struct {
		fault    fault
		requests []string
		served   int
	}{
		"it continues":                      {first(nil), []string{"", rest}, len(blob)},
		"the registry ignores the range":    {first(once(func(w http.ResponseWriter, _ *http.Request, _ int) bool { _, _ = w.Write(blob); return true })), []string{"", rest}, half + len(blob)},
		"the registry refuses the range":    {first(once(func(w http.ResponseWriter, _ *http.Request, _ int) bool { answerWith(w, 416, "", ""); return true })), []string{"", rest, ""}, half + len(blob)},
		"it continues with another part":    {first(once(partial(blob, half+7))), []string{"", rest, ""}, half + len(blob)},
		"it breaks off a second time":       {first(once(func(http.ResponseWriter, *http.Request, int) bool { panic(http.ErrAbortHandler) })), []string{"", rest, rest}, len(blob)},
		"it continues with another content": {first(once(lying(len(blob), half))), []string{"", rest, ""}, 2 * len(blob)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.push("web", i, "v1")
			r.inject(path, test.fault)
			c, _ := newCache(t, t.TempDir(), r)
			requireFile(t, get(t, c, r.host+"/web:v1"), "data", noise(1, 3<<20))
			var ranges []string
			for _, line := range r.log() {
				if after, ok := strings.CutPrefix(line, "GET "+path); ok {
					ranges = append(ranges, after)
				}
			}
			if diff := cmp.Diff(test.requests, ranges); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if served := int(r.servedOf(path)); served < test.served || served > test.served+1000 {
				t.Errorf("%d bytes were sent, want %d", served, test.served)
			}
		})
	}
}

// partial answers with a part from an offset, which is another than was asked for.
func partial(blob []byte, from int) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(blob)-1, len(blob)))
		w.Header().Set("Content-Length", fmt.Sprint(len(blob)-from))
		w.WriteHeader(http.StatusPartialContent)
		return true
	}
}

// lying answers with the right part of another blob.
func lying(size, from int) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, size-1, size))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(make([]byte, size-from))
		return true
	}
}

// TestPullGoesOnInAnotherProcess that did not begin it.
func TestPullGoesOnInAnotherProcess(t *testing.T) {
	needs(t, packer, "unsquashfs")
	r := newRegistry(t)
	i := large(t)
	blob, path := i.layers[0].blob, i.blobPath("web", 0)
	r.push("web", i, "v1")
	const half = 1 << 20
	r.inject(path, func(w http.ResponseWriter, request *http.Request, n int) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
		_, _ = w.Write(blob[:half])
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done()
		return true
	})
	c, _ := newCache(t, t.TempDir(), r)
	p := startProcess(t, c, r.host+"/web:v1")
	part := filepath.Join(c.Directory, blobsName, slotOf(digestOf(blob)), partName)
	eventually(t, "half of it is stored", func() bool { info, err := os.Stat(part); return err == nil && info.Size() == half })
	p.kill(t)
	requireFile(t, get(t, c, r.host+"/web:v1"), "data", noise(1, 3<<20))
	if served := r.servedOf(path); served != int64(len(blob)) {
		t.Errorf("%d bytes were sent of %d", served, len(blob))
	}
	requireNothingHalf(t, c.Directory)
}

// TestRegistryThatRecoversIsAskedAgain, and as late as it asks for.
func TestRegistryThatRecoversIsAskedAgain(t *testing.T) {
	needs(t, packer)
	i := simple(t)
	for name, path := range map[string]string{"the tag": "/v2/web/manifests/v1", "a blob": i.blobPath("web", 0), "the handshake": "/v2/"} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.push("web", i, "v1")
			var at []time.Time
			r.inject(path, func(w http.ResponseWriter, _ *http.Request, n int) bool {
				switch at = append(at, time.Now()); n {
				case 1:
					answerWith(w, http.StatusInternalServerError, "UNKNOWN", "sorry")
				case 2:
					w.Header().Set("Retry-After", "1")
					answerWith(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "slow down")
				case 3:
					panic(http.ErrAbortHandler)
				default:
					return false
				}
				return true
			})
			c, lines := newCache(t, t.TempDir(), r)
			get(t, c, r.host+"/web:v1")
			if len(at) < 4 || path != "/v2/" && at[2].Sub(at[1]) < time.Second {
				t.Errorf("it was asked at %v", at)
			}
			if n := lines.count("trying again"); n < 2 { // that of a broken connection may be one of the transport
				t.Errorf("%d retries were reported", n)
			}
		})
	}
}

func TestMirrorsAreAskedFirst(t *testing.T) {
	needs(t, packer, "unsquashfs")
	i := simple(t)
	path := i.blobPath("hub/web", 0)
	down := func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		answerWith(w, 500, "UNKNOWN", "sorry")
		return true
	}
	for name, test := range map[string]struct {
		inject func(mirror *registry)
		// origin is how many requests the origin gets.
		origin int
	}{
		"it has all": {func(*registry) {}, 0},
		"it is down": {func(m *registry) { m.inject("*", down) }, 5},
		"it is gone": {func(m *registry) { m.Close() }, 5},
		"it lacks a blob": {func(m *registry) {
			m.inject(path, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				answerWith(w, 404, "BLOB_UNKNOWN", "")
				return true
			})
		}, 1},
		"it lies about one": {func(m *registry) {
			m.inject(path, func(w http.ResponseWriter, _ *http.Request, _ int) bool { _, _ = w.Write([]byte("x")); return true })
		}, 1},
		"it lacks the tag": {func(m *registry) {
			m.inject("/v2/hub/web/manifests/v1", func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				answerWith(w, 404, "MANIFEST_UNKNOWN", "")
				return true
			})
		}, 1},
		"it wants a password": {func(m *registry) { m.inject("*", basic("a", "b")) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, origin := newRegistry(t), newRegistry(t)
			mirror.push("hub/web", i, "v1")
			origin.push("web", i, "v1")
			c, _ := newCache(t, t.TempDir(), mirror, origin)
			c.Registries.Mirrors = map[string][]string{origin.host: {mirror.host + "/hub"}}
			test.inject(mirror)
			got, err := c.Get(t.Context(), origin.host+"/web:v1", &authn.AuthConfig{Username: "anna", Password: "secret"})
			try(t, err)
			requireFile(t, got, "etc/name", "upper")
			try(t, got.Release())
			if mirror.has("Authorization", base64.StdEncoding.EncodeToString([]byte("anna:secret"))) {
				t.Error("the mirror got the credentials of the origin")
			}
			least, most := test.origin, test.origin
			if test.origin == 1 { // what else comes at a time may go to either
				most = 5
			}
			if n := len(origin.log()); n < least || n > most {
				t.Errorf("the origin got %d requests, want %d", n, test.origin)
			}
		})
	}
}

// TestAllRegistriesThatFailAreTold, the origin last.
func TestAllRegistriesThatFailAreTold(t *testing.T) {
	mirror, origin := newRegistry(t), newRegistry(t)
	c, _ := newCache(t, t.TempDir(), mirror, origin)
	c.Registries.Mirrors = map[string][]string{origin.host: {mirror.host}}
	_, err := c.Get(t.Context(), origin.host+"/web:v1", nil)
	var failed *PullError
	if !errors.As(err, &failed) || failed.Status != http.StatusNotFound || strings.Index(err.Error(), mirror.host+": ") > strings.LastIndex(err.Error(), origin.host+": ") {
		t.Errorf("the error is %v", err)
	}
	c.Registries.Mirrors = map[string][]string{"docker.io": {mirror.host}, origin.host: {"/x"}}
	if _, err := c.Get(t.Context(), origin.host+"/web:v1", nil); err == nil || !strings.Contains(err.Error(), `mirror "/x"`) {
		t.Errorf("a mirror without a host: %v", err)
	}
}

// TestDockerHubHasMirrors: the image of a short name comes from the mirror of docker.io.
func TestDockerHubHasMirrors(t *testing.T) {
	needs(t, packer)
	mirror := newRegistry(t)
	digest, _ := mirror.push("library/alpine", simple(t), "latest")
	c, _ := newCache(t, t.TempDir(), mirror)
	c.Registries.Mirrors = map[string][]string{"docker.io": {mirror.host}}
	for _, reference := range []string{"alpine", "docker.io/library/alpine:latest", "alpine@" + digest} {
		if got := get(t, c, reference); got.Digest != digest || got.Reference != reference {
			t.Errorf("%s is %+v", reference, got)
		}
	}
}

// TestRegistriesNeedTLS: one that is not named as insecure is not asked without it, nor with a certificate of an unknown
// authority.
func TestRegistriesNeedTLS(t *testing.T) {
	needs(t, packer)
	plain, secure := newRegistry(t), unstarted(t)
	secure.StartTLS()
	secure.host = secure.Listener.Addr().String()
	known := x509.NewCertPool()
	known.AddCert(secure.Certificate())
	for name, test := range map[string]struct {
		registry *registry
		insecure bool
		ca       *x509.CertPool
		want     string
	}{
		"plain":                   {plain, false, nil, "without TLS"},
		"plain, and insecure":     {plain, true, nil, ""},
		"an unknown authority":    {secure, false, nil, "certificate signed by unknown authority"},
		"a known authority":       {secure, false, known, ""},
		"unknown, and insecure":   {secure, true, nil, ""},
		"plain, with authorities": {plain, false, known, "without TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			test.registry.push("web", simple(t), "v1")
			c, _ := newCache(t, t.TempDir())
			c.Registries.CA = test.ca
			if test.insecure {
				c.Registries.Insecure = []string{test.registry.host}
			}
			got, err := c.Get(t.Context(), test.registry.host+"/web:v1", nil)
			if test.want == "" {
				try(t, errors.Join(err, got.Release()))
				return
			}
			refused{pull: true, words: test.want}.check(t, test.registry.host+"/web:v1", err)
		})
	}
}

// TestKeychainOfADirectory reads what docker login writes, for each registry its own.
func TestKeychainOfADirectory(t *testing.T) {
	needs(t, packer)
	r, other := newRegistry(t), newRegistry(t)
	for _, each := range []*registry{r, other} {
		each.push("web", simple(t), "v1")
		each.inject("*", basic("anna", "right"))
	}
	directory := t.TempDir()
	text, err := json.Marshal(map[string]any{"auths": map[string]any{r.host: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("anna:right"))}}})
	try(t, errors.Join(err, os.WriteFile(filepath.Join(directory, "config.json"), text, 0o600)))
	c, _ := newCache(t, t.TempDir(), r, other)
	c.Registries.Keychain = Keychain(directory)
	get(t, c, r.host+"/web:v1")
	_, err = c.Get(t.Context(), other.host+"/web:v1", nil)
	refused{pull: true, status: 401, words: "who are you"}.check(t, other.host+"/web:v1", err)
	if other.has("Authorization", "Basic") {
		t.Error("a registry got the credentials of another one")
	}
	c.Registries.Keychain = Keychain(t.TempDir())
	if _, err := c.Get(t.Context(), r.host+"/web:v1", nil); err == nil {
		t.Error("it works without credentials")
	}
}
