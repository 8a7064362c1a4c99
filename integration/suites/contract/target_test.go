// Package contract_test says what a server of smolvm's HTTP API must do, and asks servers for it: package server over a
// fake, package server over machines of QEMU, and smolvm itself where SMOLVM_BIN names its program.
//
// The part api boots nothing. The part boot is for targets that boot machines.
package contract_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// Kinds of targets, which differ by decision in some rows.
const (
	kindFake   = "fake"
	kindQEMU   = "qemu"
	kindSmolvm = "smolvm"
)

// ours are the kinds that this project decides about.
var ours = []string{kindFake, kindQEMU}

// Target is a running server.
type Target struct {
	Kind string
	// Address is as for api.NewClient.
	Address string
	// Starts says that a start and a stop change a machine's state, if only in memory.
	Starts bool
	// Boots says that a started machine is one. The following is for that only.
	Boots bool
	// Shell is an image with busybox, and Web one whose process answers HTTP on port 80 of the guest.
	Shell, Web string
	// Artifacts is the directory of .smolmachine files; empty if the test cannot write to it.
	Artifacts string
	// Host is the address at which published ports answer.
	Host string
	// Restart ends the server without its machines and starts it again at the same address.
	Restart func(t *testing.T)
	// Patience is how long a boot may take.
	Patience time.Duration
}

// targets start the servers under test. A start ends them with the test.
var targets = []struct {
	kind  string
	start func(t *testing.T) Target
}{
	{kindFake, startFake},
	{kindQEMU, startQEMU},
	{kindSmolvm, startSmolvm},
}

var leftOut = sync.OnceFunc(func() { fmt.Println("LEFT OUT: a real smolvm: SMOLVM_BIN is not set") })

// eachTarget runs a test with every target that there is here.
func eachTarget(t *testing.T, test func(t *testing.T, target Target)) {
	for _, candidate := range targets {
		if candidate.kind == kindSmolvm && os.Getenv("SMOLVM_BIN") == "" {
			leftOut()
			continue
		}
		t.Run(candidate.kind, func(t *testing.T) { test(t, candidate.start(t)) })
	}
}

// startFake serves the fake with package server on a unix socket.
func startFake(t *testing.T) Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "smolvm.sock")
	listener, err := server.Listen(t.Context(), "unix://"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	handler := server.New(server.Options{Machines: newFake(), Log: slog.New(slog.DiscardHandler), Version: "fake"})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener, handler) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server of the fake ended with %v", err)
		}
	})
	return Target{Kind: kindFake, Address: "unix://" + path, Starts: true}
}

// client returns a client of the target.
func (target Target) client(t *testing.T) *api.Client {
	t.Helper()
	c, err := api.NewClient(target.Address, api.Options{HTTP: target.http(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// http returns a client of HTTP that reaches the target at any address.
func (target Target) http(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	if socket, ok := strings.CutPrefix(target.Address, "unix://"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   string
}

// object returns the body as an object of JSON.
func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatalf("the body is no object: %v\n%.300s", err, a.body)
	}
	return o
}

// ask makes a request as it is, without the client's help.
func (target Target) ask(t *testing.T, method, path, contentType, body string) answer {
	t.Helper()
	base := "http://localhost"
	if strings.HasPrefix(target.Address, "http") {
		base = target.Address
	}
	request, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	got, err := target.http(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: got.StatusCode, header: got.Header, body: string(text)}
}

// newName returns a name of a machine that no other test has. The machine is deleted with the test.
func (target Target) newName(t *testing.T) string {
	t.Helper()
	name := "c-" + strings.ToLower(rand.Text()[:12])
	c := target.client(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Delete(ctx, name); err != nil && !api.IsNotFound(err) {
			t.Errorf("deleting machine %s: %v", name, err)
		}
	})
	return name
}

// image is one that no row of the part api pulls.
const image = "registry.invalid/none:1"

// machine creates a machine and returns its name.
func (target Target) machine(t *testing.T) string {
	t.Helper()
	name := target.newName(t)
	storage, overlay := int64(2), int64(2)
	if _, err := target.client(t).Create(t.Context(), api.CreateRequest{Name: name, Image: image, StorageGB: &storage, OverlayGB: &overlay}); err != nil {
		t.Fatal(err)
	}
	return name
}
