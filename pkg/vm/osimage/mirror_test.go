package osimage

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// impatient makes tests quick.
var impatient = timing{
	stall: 20 * time.Second, attempts: 4, backoff: time.Millisecond, maxBackoff: 4 * time.Millisecond,
	every: time.Hour, poll: 2 * time.Millisecond,
}

// mirror is a server of images that counts what it serves.
type mirror struct {
	*httptest.Server

	mu       sync.Mutex
	files    map[string]*resource
	requests []string // path and Range
	served   map[string]int64
	total    int64
	// onServed is called, while a request is being served, with how much was served in total.
	onServed func(total int64)
}

// resource is a file on a mirror.
type resource struct {
	content []byte
	etag    string
	date    time.Time
	// fault may respond to the n-th request for the file, from 1; false lets the mirror respond.
	fault func(w http.ResponseWriter, r *http.Request, n int) bool
	asked int
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{files: map[string]*resource{}, served: map[string]int64{}}
	m.Server = httptest.NewUnstartedServer(m)
	m.Config.ErrorLog = nil
	m.Start()
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.requests = append(m.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	file, ok := m.files[r.URL.Path]
	if !ok {
		m.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	file.asked++
	asked, current := file.asked, *file
	m.mu.Unlock()
	counted := &countingWriter{ResponseWriter: w, count: func(n int) {
		m.mu.Lock()
		m.served[r.URL.Path] += int64(n)
		m.total += int64(n)
		total, tell := m.total, m.onServed
		m.mu.Unlock()
		if tell != nil {
			tell(total)
		}
	}}
	if current.etag != "" {
		w.Header().Set("ETag", current.etag)
	}
	if current.fault == nil || !current.fault(counted, r, asked) {
		http.ServeContent(counted, r, "", current.date, bytes.NewReader(current.content))
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

// put stores a file under a new entity tag and returns its URL.
func (m *mirror) put(path string, content []byte) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := sha256.Sum256(content)
	m.files[path] = &resource{content: content, etag: fmt.Sprintf("%q", hex.EncodeToString(sum[:4]))}
	return m.URL + path
}

// change changes a file, for example to add a fault.
func (m *mirror) change(path string, by func(*resource)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by(m.files[path])
}

// asked returns the requests since the last call.
func (m *mirror) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := m.requests
	m.requests = nil
	return requests
}

func (m *mirror) servedOf(path string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.served[path]
}

// noise is content that does not repeat.
func noise(seed uint64, size int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(content)
	return content
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

const (
	kernelSize = 3<<20 + 17
	initrdSize = 5<<20 + 3
)

// image puts a kernel and an initrd on the mirror.
func (m *mirror) image(name string) Image {
	kernel, initrd := noise(1, kernelSize), noise(2, initrdSize)
	return Image{
		Name:   name,
		Kernel: File{URL: m.put("/kernel", kernel), SHA256: sumOf(kernel)},
		Initrd: File{URL: m.put("/initrd", initrd), SHA256: sumOf(initrd)},
	}
}

// cut writes the first bytes of the content and then breaks the connection.
func cut(content []byte, n int) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, _ *http.Request, asked int) bool {
		if asked > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:n])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// newCache returns a cache for tests; its progress is in the log of the test and in the slice.
func newCache(t *testing.T, directory string) (*Cache, *told) {
	t.Helper()
	lines := &told{t: t}
	return &Cache{Directory: directory, Local: []string{"/"}, Progress: lines.add, timing: impatient}, lines
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

func (l *told) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.lines, "\n"), part)
}

// get gets an image that is released with the end of the test.
func get(t *testing.T, c *Cache, image Image) Local {
	t.Helper()
	local, err := c.Get(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Release(); err != nil {
			t.Error(err)
		}
	})
	return local
}

func requireContent(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes with sum %s (%v), want %d with %s", path, len(got), sumOf(got), err, len(want), sumOf(want))
	}
}

// leftovers are the parts of downloads in a cache.
func leftovers(t *testing.T, directory string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(directory, "*", "*.part*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// newSigner creates a key at a time that is valid for the given lifetime; 0 means that it never expires.
func newSigner(t *testing.T, at time.Time, lifetime time.Duration) *openpgp.Entity {
	t.Helper()
	entity, err := openpgp.NewEntity("Test", "", "test@example.org", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return at }, KeyLifetimeSecs: uint32(lifetime.Seconds()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return entity
}

// sign creates a signature by the primary key, even if it was not valid at that time.
func sign(t *testing.T, by *openpgp.Entity, at time.Time, content []byte) []byte {
	t.Helper()
	s := &packet.Signature{
		Version: 4, SigType: packet.SigTypeBinary, PubKeyAlgo: by.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA256,
		CreationTime: at, IssuerKeyId: &by.PrimaryKey.KeyId, IssuerFingerprint: by.PrimaryKey.Fingerprint,
	}
	hash := sha256.New()
	_, _ = hash.Write(content)
	if err := s.Sign(hash, by.PrivateKey, nil); err != nil {
		t.Fatal(err)
	}
	var signature bytes.Buffer
	if err := s.Serialize(&signature); err != nil {
		t.Fatal(err)
	}
	return signature.Bytes()
}

// ring returns the keyring from a user's file with these public keys.
func ring(t *testing.T, entities ...*openpgp.Entity) *Keyring {
	t.Helper()
	var text bytes.Buffer
	for _, entity := range entities {
		if err := entity.Serialize(&text); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "keys.gpg")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := KeysFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// order is what another process is ordered to get.
type order struct {
	Directory string
	Image     Image
}

const orderVariable = "OSIMAGE_TEST_ORDER"

// TestMain lets the test binary act as a process that gets an image, says so, and keeps it until its input ends.
func TestMain(m *testing.M) {
	text := os.Getenv(orderVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	c := &Cache{Directory: o.Directory, Local: []string{"/"}, Progress: func(line string) { fmt.Println(line) }, timing: impatient}
	local, err := c.Get(context.Background(), o.Image)
	fmt.Println("got", local.Kernel, err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = local.Release()
}
