package ociimage

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	registries "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// impatient makes tests quick.
var impatient = timing{
	stall: 20 * time.Second, attempts: 4, backoff: time.Millisecond, maxBackoff: 4 * time.Millisecond,
	every: time.Hour, poll: 2 * time.Millisecond,
}

// fault answers the n-th request for a path, from 1; false lets the registry answer.
type fault func(w http.ResponseWriter, r *http.Request, n int) bool

// registry is a real registry that may answer with faults, and that counts what it is asked for and sends.
type registry struct {
	*httptest.Server
	t    *testing.T
	host string
	real http.Handler

	mu       sync.Mutex
	requests []string // method, path and range
	asked    map[string]int
	faults   map[string]fault
	served   map[string]int64
	headers  []http.Header
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := unstarted(t)
	r.Start()
	r.host = r.Listener.Addr().String()
	return r
}

func unstarted(t *testing.T) *registry {
	r := &registry{t: t, asked: map[string]int{}, faults: map[string]fault{}, served: map[string]int64{}}
	r.real = registries.New(registries.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	path := request.URL.Path
	line := request.Method + " " + path
	if part := request.Header.Get("Range"); part != "" {
		line += " " + part
	}
	r.requests = append(r.requests, line)
	r.headers = append(r.headers, request.Header.Clone())
	r.asked[path]++
	n, inject := r.asked[path], r.faults[path]
	if all := r.faults["*"]; inject == nil && all != nil {
		inject = all
	}
	r.mu.Unlock()
	counted := &countingWriter{ResponseWriter: w, count: func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.served[path] += int64(n)
	}}
	if inject == nil || !inject(counted, request, n) {
		r.real.ServeHTTP(counted, request)
	}
}

type countingWriter struct {
	http.ResponseWriter
	count func(int)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.count(n)
	return n, err
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// inject sets the fault of a path; "*" is every other path.
func (r *registry) inject(path string, by fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[path] = by
}

// log returns the requests since the last call, without those of the handshake.
func (r *registry) log() (requests []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.requests {
		if strings.Contains(line, "/manifests/") || strings.Contains(line, "/blobs/") {
			requests = append(requests, line)
		}
	}
	r.requests, r.headers = nil, nil
	return requests
}

// has reports whether a header was sent with any request since the last log.
func (r *registry) has(name, value string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.headers, func(h http.Header) bool { return strings.Contains(h.Get(name), value) })
}

func (r *registry) servedOf(path string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served[path]
}

func (r *registry) put(path, contentType string, content []byte) {
	r.t.Helper()
	method := http.MethodPut
	if strings.Contains(path, "/uploads/") {
		method = http.MethodPost
	}
	request := httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(content))
	request.Header.Set("Content-Type", contentType)
	answer := httptest.NewRecorder()
	r.real.ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated {
		r.t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (r *registry) putBlob(repository string, content []byte) {
	r.t.Helper()
	r.put("/v2/"+repository+"/blobs/uploads/?digest="+digestOf(content), "application/octet-stream", content)
}

// part is a layer of an image that is made for a test.
type part struct {
	mediaType types.MediaType
	blob      []byte
	diffID    string
}

func gzipped(archive []byte) part {
	var text bytes.Buffer
	w := gzip.NewWriter(&text)
	_, _ = w.Write(archive)
	_ = w.Close()
	return part{types.OCILayer, text.Bytes(), digestOf(archive)}
}

func zstandard(archive []byte) part {
	w, _ := zstd.NewWriter(nil)
	return part{types.OCILayerZStd, w.EncodeAll(archive, nil), digestOf(archive)}
}

func raw(archive []byte) part { return part{types.OCIUncompressedLayer, archive, digestOf(archive)} }

func (p part) as(t types.MediaType) part { p.mediaType = t; return p }

// image is one that is made for a test.
type image struct {
	layers       []part
	architecture string
	config       v1.Config
	// manifest and configuration change what is made.
	manifest      func(*v1.Manifest)
	configuration func(*v1.ConfigFile)
}

func hashOf(digest string) v1.Hash {
	h, _ := v1.NewHash(digest)
	return h
}

// push stores an image under tags, and returns its digest and descriptor.
func (r *registry) push(repository string, i image, tags ...string) (string, v1.Descriptor) {
	r.t.Helper()
	config := v1.ConfigFile{Architecture: i.architecture, OS: "linux", Config: i.config, RootFS: v1.RootFS{Type: "layers"}}
	if config.Architecture == "" {
		config.Architecture = runtime.GOARCH
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, l := range i.layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, hashOf(l.diffID))
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: l.mediaType, Size: int64(len(l.blob)), Digest: hashOf(digestOf(l.blob))})
		r.putBlob(repository, l.blob)
	}
	if i.configuration != nil {
		i.configuration(&config)
	}
	text, err := json.Marshal(config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.putBlob(repository, text)
	m.Config = v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(text)), Digest: hashOf(digestOf(text))}
	if i.manifest != nil {
		i.manifest(&m)
	}
	if text, err = json.Marshal(m); err != nil {
		r.t.Fatal(err)
	}
	return r.putManifest(repository, m.MediaType, text, tags...)
}

func (r *registry) putManifest(repository string, as types.MediaType, text []byte, tags ...string) (string, v1.Descriptor) {
	r.t.Helper()
	digest := digestOf(text)
	for _, name := range append(tags, digest) {
		r.put("/v2/"+repository+"/manifests/"+name, string(as), text)
	}
	return digest, v1.Descriptor{MediaType: as, Size: int64(len(text)), Digest: hashOf(digest)}
}

// pushIndex stores an index of images for architectures.
func (r *registry) pushIndex(repository, tag string, images map[string]v1.Descriptor) string {
	r.t.Helper()
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for architecture, d := range images {
		d.Platform = &v1.Platform{OS: "linux", Architecture: architecture}
		if architecture == "unknown" {
			d.Platform.OS = "unknown"
		}
		index.Manifests = append(index.Manifests, d)
	}
	text, err := json.Marshal(index)
	if err != nil {
		r.t.Fatal(err)
	}
	digest, _ := r.putManifest(repository, types.OCIImageIndex, text, tag)
	return digest
}

// newCache returns a cache that may use a registry without TLS, and what it told.
func newCache(t *testing.T, directory string, of ...*registry) (*Cache, *told) {
	t.Helper()
	lines := &told{t: t}
	c := &Cache{Directory: directory, Progress: lines.add, timing: impatient}
	c.Registries.Keychain = authn.NewMultiKeychain() // none of the host
	for _, r := range of {
		c.Registries.Insecure = append(c.Registries.Insecure, r.host)
	}
	return c, lines
}

type told struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
}

func (l *told) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	l.t.Log(line)
}

func (l *told) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get gets an image that is released with the end of the test.
func get(t *testing.T, c *Cache, reference string) Image {
	t.Helper()
	got, err := c.Get(t.Context(), reference, nil)
	try(t, err)
	t.Cleanup(func() { try(t, got.Release()) })
	return got
}

// requireFile checks what a file of an image has.
func requireFile(t *testing.T, i Image, name, want string) {
	t.Helper()
	output, err := exec.Command("unsquashfs", "-cat", i.Root, name).CombinedOutput()
	if err != nil || string(output) != want {
		t.Errorf("%s of %s has %.200q, %v", name, i.Reference, output, err)
	}
}

// requireNothingHalf checks that nothing is in the cache that is no complete image.
func requireNothingHalf(t *testing.T, directory string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(directory, imagesName))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if load(filepath.Join(directory, imagesName, e.Name())) == nil {
			t.Errorf("%s is left", e.Name())
		}
		if left, _ := filepath.Glob(filepath.Join(directory, imagesName, e.Name(), "*.new")); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// noise is content that hardly compresses, without what archiveOf takes as a link.
func noise(seed byte, size int) string {
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", seed, i))
		text.WriteString(hex.EncodeToString(sum[:]))
	}
	return text.String()[:size]
}

// simple is an image of two layers.
func simple(t testing.TB) image {
	return image{
		layers: []part{gzipped(archiveOf(t, "etc/", "etc/name=lower", "data="+noise(1, 300<<10))), gzipped(archiveOf(t, "etc/name=upper"))},
		config: v1.Config{Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c", "true"}, Env: []string{"A=1", "A=2", "=x", "B"}, WorkingDir: "srv", User: "33", StopSignal: "SIGINT"},
	}
}

func (i image) blobPath(repository string, layer int) string {
	return "/v2/" + repository + "/blobs/" + digestOf(i.layers[layer].blob)
}
