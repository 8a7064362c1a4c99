package ociimage

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func TestImagesArePulled(t *testing.T) {
	needs(t, packer, "unsquashfs")
	lower, upper := archiveOf(t, "etc/", "etc/name=lower", "data="+noise(1, 300<<10)), archiveOf(t, "etc/name=upper")
	docker := func(m *v1.Manifest) {
		m.MediaType, m.Config.MediaType = types.DockerManifestSchema2, types.DockerConfigJSON
	}
	for name, i := range map[string]image{
		"gzip":                          {layers: []part{gzipped(lower), gzipped(upper)}},
		"zstd":                          {layers: []part{zstandard(lower), zstandard(upper)}},
		"nothing is compressed":         {layers: []part{raw(lower), raw(upper)}},
		"each layer has another kind":   {layers: []part{zstandard(lower), raw(upper)}},
		"a layer is not what it says":   {layers: []part{zstandard(lower).as(types.OCILayer), raw(upper).as(types.DockerLayer)}},
		"docker":                        {layers: []part{gzipped(lower).as(types.DockerLayer), gzipped(upper).as(types.DockerLayer)}, manifest: docker},
		"docker without compression":    {layers: []part{raw(lower).as(types.DockerUncompressedLayer), raw(upper).as(types.DockerUncompressedLayer)}, manifest: docker},
		"a layer is there twice":        {layers: []part{gzipped(upper), gzipped(lower), gzipped(upper)}},
		"something is behind the layer": {layers: []part{gzipped(append(lower, make([]byte, 3<<20)...)), gzipped(upper)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			digest, _ := r.push("a/web", i, "v1")
			c, _ := newCache(t, t.TempDir(), r)
			got := get(t, c, r.host+"/a/web:v1")
			requireFile(t, got, "etc/name", "upper")
			requireFile(t, got, "data", noise(1, 300<<10))
			if got.Digest != digest || got.Platform != "linux/"+runtime.GOARCH || !filepath.IsAbs(got.Root) {
				t.Errorf("the image is %+v", got)
			}
			info, err := os.Stat(got.Root)
			try(t, err)
			if info.Size() != got.Size || info.Mode().Perm() != modeOfRoot {
				t.Errorf("the file system has %d bytes and mode %v", info.Size(), info.Mode())
			}
			for _, l := range i.layers {
				if served := r.servedOf("/v2/a/web/blobs/" + digestOf(l.blob)); served != int64(len(l.blob)) {
					t.Errorf("%d bytes were sent of a layer of %d", served, len(l.blob))
				}
			}
			requireNothingHalf(t, c.Directory)
		})
	}
}

func TestProcessIsThatOfTheImage(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	r.push("web", simple(t), "v1")
	c, _ := newCache(t, t.TempDir(), r)
	want := Process{Entrypoint: []string{"/bin/sh"}, Command: []string{"-c", "true"}, Environment: []string{"A=2"}, Directory: "/srv", User: "33", StopSignal: "SIGINT"}
	for range 2 { // the second time it comes from the cache
		if diff := cmp.Diff(want, get(t, c, r.host+"/web:v1").Process); diff != "" {
			t.Errorf("another process (-want +got):\n%s", diff)
		}
	}
}

// TestSecondMachineAsksForOneManifest: what is in the cache is not downloaded again, and its digest is not even asked for.
func TestSecondMachineAsksForOneManifest(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	i := simple(t)
	digest, d := r.push("web", i, "v1", "other")
	index := r.pushIndex("web", "multi", map[string]v1.Descriptor{runtime.GOARCH: d, "s390x": d, "unknown": d})
	c, _ := newCache(t, t.TempDir(), r)
	var config string
	for n, step := range []struct {
		reference string
		want      []string
	}{
		{"/web:multi", []string{"HEAD /v2/web/manifests/multi", "GET /v2/web/manifests/" + index, "GET /v2/web/manifests/" + digest, "config", "GET " + i.blobPath("web", 0), "GET " + i.blobPath("web", 1)}},
		{"/web:multi", []string{"HEAD /v2/web/manifests/multi"}},
		{"/web@" + index, nil},
		{"/web:v1", []string{"HEAD /v2/web/manifests/v1", "GET /v2/web/manifests/" + digest}},
		{"/web:v1", []string{"HEAD /v2/web/manifests/v1"}},
		{"/web:other", []string{"HEAD /v2/web/manifests/other"}},
		{"/web@" + digest, nil},
		{"/web:ignored@" + digest, nil},
	} {
		// Only the first one is pulled.
		if got := get(t, c, r.host+step.reference); got.Digest != digest || (got.Pulled > 0) != (n == 0) {
			t.Errorf("%d: the digest is %s, pulled in %s", n, got.Digest, got.Pulled)
		}
		requests := r.log()
		if n == 0 && len(requests) == 6 {
			config, requests[3] = requests[3], "config"
			if requests[4] > requests[5] != (step.want[4] > step.want[5]) { // they come at a time
				requests[4], requests[5] = requests[5], requests[4]
			}
		}
		if diff := cmp.Diff(step.want, requests); diff != "" {
			t.Errorf("%d: %s: requests (-want +got):\n%s", n, step.reference, diff)
		}
	}
	if !strings.HasPrefix(config, "GET /v2/web/blobs/") {
		t.Errorf("the configuration was asked for by %q", config)
	}
}

// TestTagIsNeverOld: a tag that moved is the new image, and without its registry there is none. A digest needs no
// registry.
func TestTagIsNeverOld(t *testing.T) {
	needs(t, packer, "unsquashfs")
	r := newRegistry(t)
	old, _ := r.push("web", simple(t), "v1")
	c, _ := newCache(t, t.TempDir(), r)
	get(t, c, r.host+"/web:v1")
	moved, _ := r.push("web", image{layers: []part{gzipped(archiveOf(t, "etc/name=moved"))}}, "v1")
	if got := get(t, c, r.host+"/web:v1"); got.Digest != moved {
		t.Errorf("the tag is %s, want %s", got.Digest, moved)
	}
	r.CloseClientConnections()
	r.Close()
	var failed *PullError
	if _, err := c.Get(t.Context(), r.host+"/web:v1", nil); !errors.As(err, &failed) || failed.Status != 0 {
		t.Errorf("a tag without its registry: %v", err)
	}
	requireFile(t, get(t, c, r.host+"/web@"+old), "etc/name", "upper")
	requireFile(t, get(t, c, r.host+"/web@"+moved), "etc/name", "moved")
	requireNothingHalf(t, c.Directory)
}

// TestDigestOfAnotherRepositoryIsAskedFor: who knows the digest of an image does not have it by that.
func TestDigestOfAnotherRepositoryIsAskedFor(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	digest, _ := r.push("private/web", simple(t), "v1")
	c, _ := newCache(t, t.TempDir(), r)
	get(t, c, r.host+"/private/web:v1")
	var failed *PullError
	if _, err := c.Get(t.Context(), r.host+"/mallory/web@"+digest, nil); !errors.As(err, &failed) || failed.Status != http.StatusNotFound {
		t.Errorf("the image of another repository: %v", err)
	}
}

// TestImagesOfCredentialsNeedThem: an image that was pulled with credentials of a tenant is not given to another one who
// knows its digest, before the registry allows it.
func TestImagesOfCredentialsNeedThem(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	digest, _ := r.push("web", simple(t), "v1")
	r.inject("*", basic("anna", "right"))
	c, _ := newCache(t, t.TempDir(), r)
	anna, bob := &authn.AuthConfig{Username: "anna", Password: "right"}, &authn.AuthConfig{Username: "bob", Password: "guess"}
	for n, step := range []struct {
		reference string
		auth      *authn.AuthConfig
		allowed   bool
		requests  int
	}{
		{"/web:v1", nil, false, 2}, {"/web:v1", bob, false, 2}, {"/web@" + digest, nil, false, 1},
		{"/web:v1", anna, true, 5}, {"/web:v1", anna, true, 1}, {"/web@" + digest, anna, true, 0},
		{"/web:v1", bob, false, 2}, {"/web@" + digest, nil, false, 1}, {"/web@" + digest, bob, false, 1},
	} {
		got, err := c.Get(t.Context(), r.host+step.reference, step.auth)
		try(t, got.Release())
		var failed *PullError
		if (err == nil) != step.allowed || err != nil && (!errors.As(err, &failed) || failed.Status != http.StatusUnauthorized) {
			t.Errorf("%d: %v", n, err)
		}
		if requests := r.log(); len(requests) != step.requests {
			t.Errorf("%d: requests %v", n, requests)
		}
	}
}

// basic refuses who does not have a password.
func basic(user, password string) fault {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if u, p, _ := r.BasicAuth(); u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		answerWith(w, http.StatusUnauthorized, "UNAUTHORIZED", "who are you")
		return true
	}
}

// answerWith writes an error as registries do.
func answerWith(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

func TestDamagedImagesRepairThemselves(t *testing.T) {
	needs(t, packer, "unsquashfs")
	for name, test := range map[string]struct {
		damage func(t *testing.T, i Image) error
		blobs  bool
	}{
		"nothing happened": {func(*testing.T, Image) error { return nil }, false},
		"it was touched":   {func(_ *testing.T, i Image) error { return os.Chmod(i.Root, 0o600) }, false},
		"it was cut":       {func(_ *testing.T, i Image) error { return os.Truncate(i.Root, 4096) }, true},
		"it changed": {func(_ *testing.T, i Image) error {
			text, err := os.ReadFile(i.Root)
			text[len(text)/2]++
			return errors.Join(err, os.WriteFile(i.Root, text, 0o600))
		}, true},
		"it is gone":         {func(_ *testing.T, i Image) error { return os.Remove(i.Root) }, true},
		"its record is gone": {func(_ *testing.T, i Image) error { return os.Remove(filepath.Join(filepath.Dir(i.Root), recordName)) }, true},
		"its record is damaged": {func(_ *testing.T, i Image) error {
			return os.Truncate(filepath.Join(filepath.Dir(i.Root), recordName), 20)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			digest, _ := r.push("web", simple(t), "v1")
			c, _ := newCache(t, t.TempDir(), r)
			got := get(t, c, r.host+"/web:v1")
			try(t, os.RemoveAll(filepath.Join(c.Directory, blobsName)))
			r.log()
			try(t, test.damage(t, got))
			requireFile(t, get(t, c, r.host+"/web@"+digest), "etc/name", "upper")
			if requests := r.log(); (len(requests) > 0) != test.blobs {
				t.Errorf("requests: %v", requests)
			}
			requireFile(t, get(t, c, r.host+"/web@"+digest), "etc/name", "upper")
			if requests := r.log(); len(requests) > 0 {
				t.Errorf("further requests: %v", requests)
			}
		})
	}
}

// TestProgressIsToldNowAndThen: once per interval, with how much there is.
func TestProgressIsToldNowAndThen(t *testing.T) {
	var lines []string
	p := &progress{what: "web", every: time.Hour, tell: func(line string) { lines = append(lines, line) }}
	p.begin(2, 4<<20)
	p.add(1 << 20)
	p.every = 0
	p.add(1 << 20)
	p.every = time.Hour
	p.add(1 << 20)
	if len(lines) != 2 || lines[0] != "web: pulling 2 layers, 4.0 MiB" || !strings.HasPrefix(lines[1], "web: 50 %, 2.0 of 4.0 MiB, ") {
		t.Errorf("told %q", lines)
	}
}
