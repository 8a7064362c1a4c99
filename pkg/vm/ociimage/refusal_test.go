package ociimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func TestReferencesThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ reference, want string }{
		"nothing":                    {"", "1 to 512 bytes"},
		"too long":                   {strings.Repeat("a", 513), "1 to 512 bytes"},
		"a scheme":                   {"https://example.org/web", "has a scheme"},
		"credentials":                {"anna:secret@example.org/web", "has credentials"},
		"credentials and a digest":   {"anna:secret@example.org/web@sha256:" + strings.Repeat("a", 64), "has credentials"},
		"credentials and a scheme":   {"docker://anna:secret@example.org/web", "has a scheme"},
		"a space":                    {"example.org/web :v1", "spaces"},
		"a line":                     {"example.org/web\nX: y", "spaces"},
		"a letter that looks like a": {"ex\u0430mple.org/web", "beyond ASCII"},
		"upper case":                 {"example.org/Web", "lower-case letters"},
		"a way out":                  {"example.org/../web", "letters and digits"},
		"a way out of a mirror":      {"../web", "begin with a host"},
		"nothing between":            {"example.org/a//b", "letters and digits"},
		"a tag that leads out":       {"example.org/web:..", "a tag begins"},
		"another digest":             {"web@md5:" + strings.Repeat("a", 32), "sha256"},
		"a short digest":             {"web@sha256:abc", "64 hexadecimal"},
		"only a digest":              {"@sha256:" + strings.Repeat("a", 64), "has no name"},
		"a query":                    {"example.org/web?x=y", "lower-case letters"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCache(t, t.TempDir())
			_, err := c.Get(t.Context(), test.reference, nil)
			var wrong *ReferenceError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("the error has a password: %v", err)
			}
		})
	}
}

// refused is what an error has to be.
type refused struct {
	pull      bool
	status    int
	malformed bool
	words     string
}

func (want refused) check(t *testing.T, reference string, err error) {
	t.Helper()
	var failed *PullError
	var broken MalformedError
	if errors.As(err, &failed) != want.pull || errors.As(err, &broken) != want.malformed || !strings.Contains(fmt.Sprint(err), want.words) {
		t.Errorf("the error is %v, want %+v", err, want)
	}
	if failed != nil && (failed.Status != want.status || failed.Reference != reference) || !strings.Contains(fmt.Sprint(err), reference) {
		t.Errorf("the error is %+v of %v, want that of %s, and status %d", failed, err, reference, want.status)
	}
}

// TestRegistriesThatFail: what registries do wrong is reported in their words, and nothing half is left. Blobs are those of
// the lower layer of the image.
func TestRegistriesThatFail(t *testing.T) {
	needs(t, packer)
	layer := simple(t).layers[0].blob
	always := func(status int, code, message string) fault {
		return func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			answerWith(w, status, code, message)
			return true
		}
	}
	for name, test := range map[string]struct {
		tag, blob, all fault
		want           refused
	}{
		"it is denied":           {tag: always(403, "DENIED", "not for you"), want: refused{pull: true, status: 403, words: "it answers 403 Forbidden, DENIED: not for you"}},
		"it wants credentials":   {all: basic("a", "b"), want: refused{pull: true, status: 401, words: "UNAUTHORIZED: who are you"}},
		"it has no such tag":     {tag: always(404, "MANIFEST_UNKNOWN", "no such tag"), want: refused{pull: true, status: 404, words: "MANIFEST_UNKNOWN: no such tag"}},
		"it has no such blob":    {blob: always(404, "BLOB_UNKNOWN", "lost"), want: refused{pull: true, status: 404, words: "BLOB_UNKNOWN: lost"}},
		"it always breaks down":  {tag: always(500, "UNKNOWN", "sorry"), want: refused{pull: true, status: 500, words: "given up after 4 attempts"}},
		"it is always busy":      {blob: always(429, "TOOMANYREQUESTS", "slow down"), want: refused{pull: true, status: 429, words: "TOOMANYREQUESTS: slow down"}},
		"it says what is hidden": {tag: always(403, "DENIED", "line\n\x1b[31m\x00two "+strings.Repeat("x", 1<<10)), want: refused{pull: true, status: 403, words: "DENIED: line [31m two xxx"}},
		"it asks no one":         {all: always(503, "UNAVAILABLE", "closed"), want: refused{pull: true, status: 503, words: "closed"}},
		"another manifest": {tag: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("1", 64))
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			return true
		}, want: refused{pull: true, status: 404, words: "Unknown manifest"}},
		"another blob": {blob: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			_, _ = w.Write([]byte(noise(9, len(layer))))
			return true
		}, want: refused{pull: true, words: "content does not match its digest"}},
		"a longer blob": {blob: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Length", fmt.Sprint(len(layer)+1))
			_, _ = w.Write(append(layer[:len(layer):len(layer)], 0))
			return true
		}, want: refused{pull: true, words: "content does not match its digest"}},
		"an endless blob": {blob: endless, want: refused{pull: true, words: "more bytes than the manifest declares"}},
		"an endless manifest": {tag: func(w http.ResponseWriter, r *http.Request, n int) bool {
			return r.Method == http.MethodHead && hushed(w) || endless(w, r, n)
		}, want: refused{malformed: true, words: "manifest has more than"}},
		"a blob that always breaks off": {blob: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			return cut(w, layer, 1000)
		}, want: refused{pull: true, words: fmt.Sprintf("broke off after 1000 of %d bytes", len(layer))}},
		"a blob that ends early": {blob: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			_, _ = w.Write(layer[:1000])
			_ = http.NewResponseController(w).Flush()
			return true
		}, want: refused{pull: true, words: "broke off after 1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			i := simple(t)
			r.push("web", i, "v1")
			r.inject("/v2/web/manifests/v1", test.tag)
			r.inject(i.blobPath("web", 0), test.blob)
			r.inject("*", test.all)
			c, _ := newCache(t, t.TempDir(), r)
			reference := r.host + "/web:v1"
			_, err := c.Get(t.Context(), reference, nil)
			test.want.check(t, reference, err)
			if len(fmt.Sprint(err)) > 1000 || strings.ContainsAny(fmt.Sprint(err), "\n\x00\x1b") {
				t.Errorf("the error is long or has control characters: %q", err)
			}
			requireNothingHalf(t, c.Directory)
			if left, _ := filepath.Glob(filepath.Join(c.Directory, blobsName, slotOf(digestOf(layer)), blobName)); len(left) > 0 {
				t.Errorf("a wrong blob counts as a right one")
			}
			r.inject("/v2/web/manifests/v1", nil)
			r.inject(i.blobPath("web", 0), nil)
			r.inject("*", nil)
			get(t, c, reference) // it heals
		})
	}
}

// hushed answers a HEAD without a digest.
func hushed(w http.ResponseWriter) bool { w.WriteHeader(http.StatusOK); return true }

// endless sends until the client has enough.
func endless(w http.ResponseWriter, _ *http.Request, _ int) bool {
	for err := error(nil); err == nil; {
		_, err = w.Write(make([]byte, 64<<10))
	}
	return true
}

// cut sends the first bytes of the content and then breaks the connection.
func cut(w http.ResponseWriter, content []byte, n int) bool {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = w.Write(content[:n])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestMalformedImages(t *testing.T) {
	needs(t, packer)
	good := archiveOf(t, "a=1")
	for name, test := range map[string]struct {
		image image
		limit int64
		want  string
	}{
		"a layer with another content":     {image: image{layers: []part{{types.OCILayer, gzipped(good).blob, digestOf([]byte("x"))}}}, want: "by its configuration"},
		"a layer that is cut":              {image: image{layers: []part{{types.OCILayer, gzipped(good).blob[:30], digestOf(good)}}}, want: "cannot be uncompressed"},
		"a layer that is no archive":       {image: image{layers: []part{raw([]byte(noise(1, 2000)))}}, want: "invalid tar header"},
		"a broken gzip":                    {image: image{layers: []part{{types.OCILayer, []byte("\x1f\x8b\x08\xff broken"), digestOf(nil)}}}, want: "cannot be uncompressed"},
		"a broken zstd":                    {image: image{layers: []part{{types.OCILayerZStd, []byte("\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff"), digestOf(nil)}}}, want: "cannot be uncompressed"},
		"a zstd that wants 2 GiB":          {image: image{layers: []part{{types.OCILayerZStd, []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"), digestOf(nil)}}}, want: "cannot be uncompressed"},
		"a bomb":                           {image: image{layers: []part{gzipped(make([]byte, 8<<20))}}, limit: 1 << 20, want: "more bytes than are allowed"},
		"a bomb behind the archive":        {image: image{layers: []part{gzipped(append(good[:len(good):len(good)], make([]byte, 8<<20)...))}}, limit: 1 << 20, want: "more bytes than are allowed"},
		"more than it may have":            {image: image{layers: []part{raw(make([]byte, 2<<20))}}, limit: 1 << 20, want: "are allowed"},
		"a layer that is elsewhere":        {image: image{layers: []part{gzipped(good).as(types.DockerForeignLayer)}}, want: "not distributed"},
		"a layer that must not be given":   {image: image{layers: []part{gzipped(good).as(types.OCIRestrictedLayer)}}, want: "not distributed"},
		"a layer of another kind":          {image: image{layers: []part{gzipped(good).as("application/x-helm")}}, want: "application/x-helm"},
		"more layers than it declares":     {image: image{layers: []part{raw(good)}, configuration: func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil }}, want: "its configuration 0"},
		"128 layers":                       {image: image{layers: repeated(raw(good), 128)}, want: "128 layers"},
		"a large configuration":            {image: image{config: v1.Config{User: strings.Repeat("x", maxManifest)}}, want: "are allowed"},
		"a zero byte":                      {image: image{config: v1.Config{Cmd: []string{"a\x00b"}}}, want: "zero byte"},
		"a negative size":                  {image: image{layers: []part{raw(good)}, manifest: func(m *v1.Manifest) { m.Layers[0].Size = -1 }}, want: "-1 bytes"},
		"something that is no image":       {image: image{manifest: func(m *v1.Manifest) { m.Config.MediaType = "application/vnd.cncf.helm.config.v1+json" }}, want: "no container image"},
		"a way out":                        {image: image{layers: []part{raw(archiveOf(t, "../x=1"))}}, want: "leads out"},
		"a hard link before what it means": {image: image{layers: []part{raw(archiveOf(t, "a=>b", "b=1"))}}, want: "hard link"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.push("web", test.image, "v1")
			c, _ := newCache(t, t.TempDir(), r)
			if test.limit > 0 {
				c.Limits = Limits{Files: 100, Bytes: test.limit}
			}
			_, err := c.Get(t.Context(), r.host+"/web:v1", nil)
			refused{malformed: true, words: test.want}.check(t, r.host+"/web:v1", err)
			requireNothingHalf(t, c.Directory)
			if left, _ := os.ReadDir(filepath.Join(c.Directory, blobsName)); len(left) > 0 {
				t.Errorf("blobs of it are left: %v", left)
			}
		})
	}
}

func repeated(p part, n int) (all []part) {
	for range n {
		all = append(all, p)
	}
	return all
}

func TestManifestsThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ sent, text, want string }{
		"no JSON":            {string(types.OCIManifestSchema1), "<html>", "not readable"},
		"schema 1":           {"", `{"schemaVersion":1}`, "of the type"},
		"another kind":       {string(types.OCIManifestSchema1), `{"mediaType":"` + string(types.OCIImageIndex) + `"}`, "is sent as"},
		"two kinds":          {string(types.OCIImageIndex), `{"manifests":[{"digest":"sha256:` + strings.Repeat("a", 64) + `"}],"layers":[{"digest":"sha256:` + strings.Repeat("a", 64) + `"}]}`, "at once"},
		"no configuration":   {string(types.OCIManifestSchema1), `{}`, "no configuration"},
		"a digest of sha512": {string(types.OCIManifestSchema1), `{"config":{"mediaType":"` + string(types.OCIConfigJSON) + `","digest":"sha512:` + strings.Repeat("a", 128) + `"}}`, "sha256"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseManifest(test.sent, []byte(test.text), DefaultLimits)
			if !errors.As(err, new(MalformedError)) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestPlatforms(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	digests := map[string]string{}
	descriptors := map[string]v1.Descriptor{}
	for _, architecture := range []string{"amd64", "arm64", "s390x"} {
		digests[architecture], descriptors[architecture] = r.push("web", image{architecture: architecture, layers: []part{raw(archiveOf(t, "for="+architecture))}}, architecture)
	}
	descriptors["unknown"] = descriptors["amd64"]
	r.pushIndex("web", "multi", descriptors)
	r.pushIndex("web", "lying", map[string]v1.Descriptor{"amd64": descriptors["s390x"]})
	for name, test := range map[string]struct {
		platform, tag, image string
		available            []string
	}{
		"one of several":           {"linux/arm64", "multi", "arm64", nil},
		"another one":              {"linux/amd64", "multi", "amd64", nil},
		"none of several":          {"linux/riscv64", "multi", "", []string{"linux/amd64", "linux/arm64", "linux/s390x"}},
		"the only one":             {"linux/s390x", "s390x", "s390x", nil},
		"another than the only":    {"linux/amd64", "s390x", "", []string{"linux/s390x"}},
		"a variant that is wanted": {"linux/arm64/v9", "multi", "", []string{"linux/amd64", "linux/arm64", "linux/s390x"}},
		"another than it says":     {"linux/amd64", "lying", "", []string{"linux/s390x"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCache(t, t.TempDir(), r)
			c.Platform = test.platform
			got, err := c.Get(t.Context(), r.host+"/web:"+test.tag, nil)
			var none *PlatformError
			if test.image != "" {
				try(t, errors.Join(err, got.Release()))
				if got.Digest != digests[test.image] {
					t.Errorf("the image is %+v", got)
				}
				return
			}
			if !errors.As(err, &none) || none.Wanted != test.platform || none.Reference != r.host+"/web:"+test.tag {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range test.available {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not name %s", err, want)
				}
			}
			requireNothingHalf(t, c.Directory)
		})
	}
}

func TestVariants(t *testing.T) {
	of := func(variant string) v1.Descriptor {
		return v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: hashOf(digestOf([]byte(variant))), Platform: &v1.Platform{OS: "linux", Architecture: "arm", Variant: variant}}
	}
	for name, test := range map[string]struct {
		wanted   string
		variants []string
		want     string
	}{
		"the first if none is wanted":       {"linux/arm", []string{"v6", "v7"}, "v6"},
		"the one without if none is wanted": {"linux/arm", []string{"v6", "", "v7"}, ""},
		"the one that is wanted":            {"linux/arm/v7", []string{"v6", "", "v7"}, "v7"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest{MediaType: types.OCIImageIndex}
			for _, v := range test.variants {
				m.Manifests = append(m.Manifests, of(v))
			}
			if got, err := m.choose("web", test.wanted); err != nil || got.Digest != of(test.want).Digest {
				t.Errorf("it is %+v, %v", got.Platform, err)
			}
		})
	}
}

// TestPullThatIsCalledOffEnds, and says why.
func TestPullThatIsCalledOffEnds(t *testing.T) {
	r := newRegistry(t)
	i := simple(t)
	r.push("web", i, "v1")
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	r.inject(i.blobPath("web", 0), func(_ http.ResponseWriter, request *http.Request, _ int) bool {
		cancel(over)
		<-request.Context().Done()
		return true
	})
	c, _ := newCache(t, t.TempDir(), r)
	if _, err := c.Get(ctx, r.host+"/web:v1", nil); !errors.Is(err, over) {
		t.Errorf("the error is %v", err)
	}
	requireNothingHalf(t, c.Directory)
}

// FuzzConfiguration: whatever a configuration is, it is refused or has a process that Linux can start.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"architecture":"amd64","os":"linux","rootfs":{"diff_ids":[]},"config":{"Env":["A=1","=","B"],"Cmd":["a"],"WorkingDir":"../x"}}`))
	f.Add([]byte(`{"config":{"Cmd":["a\u0000"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfiguration(text, 0)
		if err != nil {
			if !errors.As(err, new(MalformedError)) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		p := c.process()
		for _, variable := range p.Environment {
			if strings.Index(variable, "=") < 1 {
				t.Errorf("the variable %q has no name", variable)
			}
		}
		if written, err := json.Marshal(p); err != nil || strings.Contains(string(written), `\u0000`) || p.Directory != "" && !filepath.IsAbs(p.Directory) {
			t.Errorf("%s, %v", written, err)
		}
	})
}

// FuzzManifest: whatever a manifest is, it is refused or bounded.
func FuzzManifest(f *testing.F) {
	f.Add(string(types.OCIManifestSchema1), []byte(`{"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:`+strings.Repeat("a", 64)+`","size":1},"layers":[]}`))
	f.Add("", []byte(`{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"platform":{"os":"linux","architecture":"amd64"}}]}`))
	limits := Limits{Files: 10, Bytes: 1000}
	f.Fuzz(func(t *testing.T, sent string, text []byte) {
		m, err := parseManifest(sent, text, limits)
		if err != nil {
			if !errors.As(err, new(MalformedError)) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if m.isIndex() {
			_, _ = m.choose("web", "linux/amd64")
			return
		}
		total := int64(0)
		for _, l := range m.Layers {
			total += l.Size
		}
		if total > limits.Bytes || len(m.Layers) > maxLayers || m.Config.Size > maxManifest {
			t.Errorf("it has %d bytes, %d layers", total, len(m.Layers))
		}
	})
}

// FuzzReference: whatever a reference is, it is refused, or leads to a host and a repository without credentials.
func FuzzReference(f *testing.F) {
	f.Add("alpine")
	f.Add("a:b@c/d@sha256:" + strings.Repeat("a", 64))
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := parseReference(text)
		if err != nil {
			return
		}
		if host := ref.name.Context().RegistryStr(); strings.ContainsAny(host, "@/?# ") || strings.Contains(ref.name.Context().RepositoryStr(), "..") {
			t.Errorf("%q leads to %q", text, ref.name)
		}
	})
}

// TestSilentRegistryIsGivenUp, also one that sends a byte now and then.
func TestSilentRegistryIsGivenUp(t *testing.T) {
	for name, by := range map[string]fault{
		"it sends nothing": func(_ http.ResponseWriter, r *http.Request, _ int) bool { <-r.Context().Done(); return true },
		"it sends little": func(w http.ResponseWriter, r *http.Request, _ int) bool {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte{0})
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			i := simple(t)
			r.push("web", i, "v1")
			r.inject(i.blobPath("web", 0), by)
			c, _ := newCache(t, t.TempDir(), r)
			c.timing.stall, c.timing.attempts = 500*time.Millisecond, 2
			_, err := c.Get(t.Context(), r.host+"/web:v1", nil)
			if name == "it sends nothing" && strings.Contains(fmt.Sprint(err), "timeout awaiting response headers") {
				return // the transport saw it first
			}
			refused{pull: true, words: "silent for too long"}.check(t, r.host+"/web:v1", err)
		})
	}
}
