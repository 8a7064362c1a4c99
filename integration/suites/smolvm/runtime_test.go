package smolvm_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// fakeRuntime plays the runtime of a node: its machines are in memory, and run nothing.
type fakeRuntime struct {
	mu       sync.Mutex
	machines map[string]api.Machine
	// did are the requests that changed something, in order, as "create NAME".
	did []string
	// fail is what an operation answers, by its name, for example "start".
	fail map[string]error
	// slow delays an operation until the channel is closed.
	slow map[string]chan struct{}
	// hung makes every request hang.
	hung chan struct{}
	// deaf makes it answer a watch with a list, as a runtime that does not know watches.
	deaf bool
	// lose are how many answers to requests are lost, by method and the end of the path, after what was asked is done.
	lose map[string]int
	// token is the one that is accepted.
	token string
	// auth is what came with the last start of each machine.
	auth map[string]api.RegistryAuth
	// password is what the registry of the images wants; empty for none.
	password string
	// identity is the node that it says it is on.
	identity api.Identity
}

var errNoGuest = errors.New("a fake runtime has no guests")

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{machines: map[string]api.Machine{}, fail: map[string]error{}, auth: map[string]api.RegistryAuth{}, slow: map[string]chan struct{}{}, token: token}
}

// set changes what the runtime does.
func (f *fakeRuntime) set(by func(f *fakeRuntime)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by(f)
}

func (f *fakeRuntime) count(operation, machine string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, did := range f.did {
		if did == operation+" "+machine {
			n++
		}
	}
	return n
}

func (f *fakeRuntime) has(machine string) (api.Machine, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.machines[machine]
	return m, ok
}

// change changes a machine, as its guest or a person at the node would.
func (f *fakeRuntime) change(machine string, by func(*api.Machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.machines[machine]
	by(&m)
	f.machines[machine] = m
}

func (f *fakeRuntime) List(context.Context) ([]api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []api.Machine{}
	for _, m := range f.machines {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b api.Machine) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all, nil
}

func (f *fakeRuntime) Get(_ context.Context, name string) (api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.machines[name]; ok {
		return m, nil
	}
	return api.Machine{}, api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
}

// begin delays an operation, or has it fail. mu is held after it.
func (f *fakeRuntime) begin(ctx context.Context, operation, name string) error {
	f.mu.Lock()
	slow := f.slow[operation]
	f.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			f.mu.Lock()
			return ctx.Err()
		}
	}
	f.mu.Lock()
	if err := f.fail[operation]; err != nil {
		return err
	}
	f.did = append(f.did, operation+" "+name)
	return nil
}

func (f *fakeRuntime) Create(ctx context.Context, r api.CreateRequest) (api.Machine, error) {
	err := f.begin(ctx, "create", r.Name)
	defer f.mu.Unlock()
	if err != nil {
		return api.Machine{}, err
	}
	if m, ok := f.machines[r.Name]; ok {
		if m.SpecHash != r.SpecHash {
			return m, api.Errorf(api.CodeConflict, "machine '%s' already exists", r.Name)
		}
		return m, nil
	}
	m := api.Machine{
		Name: r.Name, State: api.StateCreated, CPUs: 1, MemoryMB: 512, StorageGB: 20, OverlayGB: 10, Network: r.Network, Ports: r.Ports,
		AllowedCIDRs: r.AllowedCIDRs, Image: r.Image, From: r.From, Owner: r.Owner, SpecHash: r.SpecHash,
	}
	for _, given := range []struct{ from, to *int64 }{{r.MemoryMB, &m.MemoryMB}, {r.StorageGB, &m.StorageGB}, {r.OverlayGB, &m.OverlayGB}} {
		if given.from != nil {
			*given.to = *given.from
		}
	}
	if r.CPUs != nil {
		m.CPUs = *r.CPUs
	}
	f.machines[r.Name] = m
	return m, nil
}

// on changes a machine by an operation.
func (f *fakeRuntime) on(ctx context.Context, operation, name string, by func(*api.Machine)) (api.Machine, error) {
	err := f.begin(ctx, operation, name)
	defer f.mu.Unlock()
	if err != nil {
		return api.Machine{}, err
	}
	m, ok := f.machines[name]
	if !ok {
		return m, api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
	}
	by(&m)
	f.machines[name] = m
	return m, nil
}

func (f *fakeRuntime) Start(ctx context.Context, name string, r api.StartRequest) (api.Machine, error) {
	if err := f.pull(name, r.RegistryAuth); err != nil {
		return api.Machine{}, err
	}
	return f.on(ctx, "start", name, func(m *api.Machine) {
		m.State, m.PID, m.Accelerator, m.StartedAt, m.ImageDigest, m.Workload = api.StateRunning, 4711, "tcg", 1_700_000_000, "sha256:abc", api.WorkloadRunning
	})
}

// pull plays the registry of an image.
func (f *fakeRuntime) pull(machine string, auth *api.RegistryAuth) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.auth, machine)
	if auth != nil {
		f.auth[machine] = *auth
	}
	if f.auth[machine].Password != f.password {
		return api.Errorf(api.CodeImagePullFailed, "registry.example.org: it answers 401 Unauthorized")
	}
	return nil
}

func (f *fakeRuntime) Stop(ctx context.Context, name string) (api.Machine, error) {
	return f.on(ctx, "stop", name, func(m *api.Machine) { m.State, m.PID, m.Accelerator, m.Workload = api.StateStopped, 0, "", "" })
}

func (f *fakeRuntime) Resize(ctx context.Context, name string, r api.ResizeRequest) (api.Machine, error) {
	return f.on(ctx, "resize", name, func(m *api.Machine) {
		if r.StorageGB != nil {
			m.StorageGB = *r.StorageGB
		}
		if r.OverlayGB != nil {
			m.OverlayGB = *r.OverlayGB
		}
	})
}

func (f *fakeRuntime) Delete(ctx context.Context, name string) error {
	err := f.begin(ctx, "delete", name)
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	if _, ok := f.machines[name]; !ok {
		return api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
	}
	delete(f.machines, name)
	return nil
}

func (*fakeRuntime) Exec(context.Context, string, api.ExecRequest, io.Writer, io.Writer) (int, error) {
	return 0, errNoGuest
}
func (*fakeRuntime) Logs(context.Context, string, int, bool, io.Writer) error  { return errNoGuest }
func (*fakeRuntime) ReadFile(context.Context, string, string, io.Writer) error { return errNoGuest }
func (*fakeRuntime) WriteFile(context.Context, string, string, io.Reader) (int64, error) {
	return 0, errNoGuest
}
func (*fakeRuntime) EgressEvents(context.Context, string, int) ([]api.EgressEvent, error) {
	return nil, errNoGuest
}
func (*fakeRuntime) Capacity(context.Context) (api.Capacity, error) { return api.Capacity{}, nil }
func (*fakeRuntime) Health(context.Context) (api.Health, error) {
	return api.Health{Status: "ok", Backend: "fake", Version: "a fake of the tests", Accelerator: string(v1alpha1.AcceleratorTCG)}, nil
}
func (*fakeRuntime) Drain(context.Context) error { return nil }

// served is where a runtime is served, until it is closed.
type served struct {
	port        int32
	certificate string
	// seen are the Authorization headers of requests.
	mu     sync.Mutex
	seen   []string
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *served) close() {
	s.cancel()
	<-s.ended
}

func (s *served) tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// serve serves a runtime over TLS on a port of the loopback; 0 for any. It is closed with the test at the latest.
func (f *fakeRuntime) serve(t testing.TB, port int32) *served {
	t.Helper()
	pair, text := newCertificate(t, cmp.Or(f.identity.NodeName, "elsewhere"))
	s := &served{certificate: text, port: port, ended: make(chan struct{})}
	machines := server.New(server.Options{Machines: f, Log: slog.New(slog.DiscardHandler), Version: "fake"})
	s.listen(t, pair, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Header.Get("Authorization"))
		s.mu.Unlock()
		f.mu.Lock()
		hung, wanted := f.hung, f.token
		if f.deaf {
			r.URL.RawQuery = ""
		}
		f.mu.Unlock()
		if hung != nil {
			select {
			case <-hung:
			case <-r.Context().Done():
				return
			}
		}
		if r.Header.Get("Authorization") != "Bearer "+wanted {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"the token is not accepted","code":"UNAUTHORIZED"}`)
			return
		}
		if r.URL.Path == api.IdentityPath {
			f.mu.Lock()
			is := f.identity
			f.mu.Unlock()
			_ = json.NewEncoder(w).Encode(is)
			return
		}
		if f.loses(r) {
			machines.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		machines.ServeHTTP(w, r)
	}))
	return s
}

// loses returns whether the answer to a request is to be lost.
func (f *fakeRuntime) loses(r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for which, n := range f.lose {
		method, end, _ := strings.Cut(which, " ")
		if n > 0 && r.Method == method && strings.HasSuffix(r.URL.Path, end) {
			f.lose[which]--
			return true
		}
	}
	return false
}

// serveHTTP serves anything in place of a runtime.
func serveHTTP(t testing.TB, pair tls.Certificate, text string, handler http.Handler) *served {
	t.Helper()
	s := &served{certificate: text, ended: make(chan struct{})}
	s.listen(t, pair, handler)
	return s
}

// listen serves a handler until the end of the test at the latest.
func (s *served) listen(t testing.TB, pair tls.Certificate, handler http.Handler) {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(s.port)})
	if err != nil {
		t.Fatal(err)
	}
	s.port = int32(listener.Addr().(*net.TCPAddr).Port)
	web := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		context.AfterFunc(ctx, func() { _ = web.Close() })
		_ = web.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))
	}()
	t.Cleanup(s.close)
}

// newCertificate returns a self-signed certificate for a node, and the same in PEM.
func newCertificate(t testing.TB, node string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "smolvm-runtime"}, DNSNames: []string{node, "smolvm-runtime"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
