package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func TestFiles(t *testing.T) {
	files := map[string]string{}
	machines := &stub{
		read: func(path string, out io.Writer) error {
			content, ok := files[path]
			if !ok {
				return api.Errorf(api.CodeNotFound, "there is no file %s", path)
			}
			_, err := io.WriteString(out, content)
			return err
		},
		write: func(path string, in io.Reader) (int64, error) {
			content, err := io.ReadAll(in)
			if err != nil {
				return 0, errors.New("the file could not be written")
			}
			files[path] = string(content)
			return int64(len(content)), nil
		},
	}
	url, c := serve(t, machines, func(l *limits) { l.file = 1000 })
	for path, content := range map[string]string{"/etc/motd": "hello", "/a b/ü?#%2F": "x", "/empty": "", "/large": strings.Repeat("x", 1000)} {
		written, err := c.WriteFile(t.Context(), "x", path, strings.NewReader(content))
		if err != nil || written != (api.FileWritten{Path: path, Size: int64(len(content))}) || files[path] != content {
			t.Errorf("writing %s: %+v, %q: %v", path, written, files[path], err)
		}
		var got bytes.Buffer
		if err := c.ReadFile(t.Context(), "x", path, &got); err != nil || got.String() != content {
			t.Errorf("reading %s: %q: %v", path, got.String(), err)
		}
	}
	if err := c.ReadFile(t.Context(), "x", "/none", io.Discard); !api.IsNotFound(err) {
		t.Errorf("reading a file that is not there: %v", err)
	}
	for name, in := range map[string]io.Reader{"known": strings.NewReader(strings.Repeat("x", 1001)), "unknown": io.MultiReader(strings.NewReader(strings.Repeat("x", 1001)))} {
		_, err := c.WriteFile(t.Context(), "x", "/too/large", in)
		if api.ErrorOf(err).Status() != http.StatusRequestEntityTooLarge || files["/too/large"] != "" {
			t.Errorf("writing a large file of %s size: %v", name, err)
		}
	}
	for path, want := range map[string]int{"": 404, "/": 404, "/a/../b": 400, "/a%2F..%2Fb": 400, "//a": 400, "/a/": 400, "/a%00": 400, "/.": 400} {
		answer, body := ask(t, http.MethodGet, url+"/api/v1/machines/x/files"+path, "", nil)
		if answer.StatusCode != want {
			t.Errorf("%s: %d %s", path, answer.StatusCode, body)
		}
	}
}

func TestMetricsHaveNoNamesOfMachines(t *testing.T) {
	machines := &stub{
		health: func(context.Context) (api.Health, error) {
			var h api.Health
			h.Machines.Total, h.Machines.Running = 3, 2
			return h, nil
		},
		stop: func(context.Context, string) (api.Machine, error) {
			return api.Machine{}, api.Errorf(api.CodeNotFound, "none")
		},
		exec: func(context.Context, api.ExecRequest, io.Writer, io.Writer) (int, error) { return 0, nil },
	}
	url, c := serve(t, machines, nil)
	_, _ = c.Stop(t.Context(), "secret-name")
	_, _ = c.Exec(t.Context(), "secret-name", api.ExecRequest{Command: []string{"true"}})
	ask(t, http.MethodGet, url+"/secret-name", "", nil)
	ask(t, "SECRET-NAME", url+"/health", "", nil)
	_, out := ask(t, http.MethodGet, url+"/metrics", "", nil)
	for _, want := range []string{
		`smolvm_api_requests_total{method="POST",path="/api/v1/machines/{name}/stop",status="404"} 1`,
		`smolvm_api_requests_total{method="GET",path="unmatched",status="404"} 1`,
		`smolvm_api_requests_total{method="other",path="unmatched",status="405"} 1`,
		"smolvm_machines_total 3", "smolvm_machines_running 2", "smolvm_exec_seconds_count 1",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("the metrics have no %s:\n%s", want, out)
		}
	}
	if strings.Contains(strings.ToLower(out), "secret-name") {
		t.Errorf("the metrics have a name:\n%s", out)
	}
}

// TestDescriptionIsComplete compares the description with the routes and the types, and with the file for readers, which
// UPDATE=1 writes.
func TestDescriptionIsComplete(t *testing.T) {
	text := OpenAPI("test")
	var document struct {
		OpenAPI    string
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(text, &document); err != nil || document.OpenAPI != "3.1.0" {
		t.Fatalf("the description is of OpenAPI %q: %v", document.OpenAPI, err)
	}
	described := 0
	for path, methods := range document.Paths {
		for method := range methods {
			described++
			if !slices.ContainsFunc(routes(), func(r route) bool {
				return r.method == strings.ToUpper(method) && strings.ReplaceAll(r.pattern, "...", "") == path
			}) {
				t.Errorf("%s %s is no route", method, path)
			}
		}
	}
	if described != len(routes()) {
		t.Errorf("%d operations are described, there are %d routes", described, len(routes()))
	}
	for _, found := range regexp.MustCompile(`"#/components/schemas/(\w+)"`).FindAllSubmatch(text, -1) {
		if _, ok := document.Components.Schemas[string(found[1])]; !ok {
			t.Errorf("there is no schema %s", found[1])
		}
	}
	for _, value := range []any{
		api.CreateRequest{}, api.StartRequest{}, api.ResizeRequest{}, api.ExecRequest{}, api.Machine{}, api.Machines{}, api.Deleted{},
		api.ExecResponse{}, api.ExecExit{}, api.StreamError{}, api.FileWritten{}, api.Health{}, api.Capacity{}, api.Status{},
		api.EgressEvents{}, api.EgressEvent{}, api.Error{}, api.WatchEvent{}, api.Port{}, api.EnvVar{}, api.Mount{}, api.Restart{}, api.Owner{},
	} {
		kind := reflect.TypeOf(value)
		for field := range jsonFields(kind) {
			if _, ok := document.Components.Schemas[kind.Name()].Properties[field]; !ok {
				t.Errorf("schema %s has no %s", kind.Name(), field)
			}
		}
	}
	const golden = "testdata/openapi.json"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("the description differs from %s (-want +got):\n%s", golden, diff)
	}
	url, _ := serve(t, &stub{}, nil)
	if _, body := ask(t, http.MethodGet, url+"/api-docs/openapi.json", "", nil); body != string(OpenAPI("")) {
		t.Error("the server serves another description")
	}
}

func TestListenRefusesAddresses(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{
		"every address":                "0.0.0.0:0",
		"every address of IPv6":        "[::]:0",
		"a name":                       "localhost:8080",
		"no address":                   ":8080",
		"nothing":                      "",
		"no path":                      "unix://",
		"a file that is no socket":     filepath.Join(directory, "file"),
		"a path that is too long":      "/" + strings.Repeat("x", 200),
		"a directory below what is no": filepath.Join(directory, "file", "s"),
	} {
		t.Run(name, func(t *testing.T) {
			if listener, err := Listen(t.Context(), address, false); err == nil {
				listener.Close()
				t.Errorf("it listens on %s", address)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(directory, "file")); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	listener, err := Listen(t.Context(), "[::ffff:127.0.0.1]:0", false)
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
}

func TestSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "s")
	first, err := Listen(t.Context(), "unix://"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := os.Stat(path); err != nil || found.Mode().Perm() != modeOfSocket {
		t.Fatalf("the socket is %v: %v", found.Mode(), err)
	}
	if second, err := Listen(t.Context(), path, false); err == nil {
		second.Close()
		t.Fatal("two servers listen on one socket")
	}
	// A server that is killed leaves its socket.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	third, err := Listen(t.Context(), path, false)
	if err != nil {
		t.Fatalf("a stale socket stays: %v", err)
	}
	third.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestServeEndsGracefully: a request that is under way is answered, one who watches is sent home, and the socket goes.
func TestServeEndsGracefully(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := Listen(t.Context(), path, false)
	if err != nil {
		t.Fatal(err)
	}
	stopping, release := make(chan struct{}), make(chan struct{})
	w := &world{}
	machines := &stub{list: w.list, stop: func(context.Context, string) (api.Machine, error) {
		close(stopping)
		<-release
		return api.Machine{Name: "x", State: api.StateStopped}, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, listener, New(Options{Machines: machines})) }()
	c, err := api.NewClient("unix://"+path, api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	watching, watched := make(chan struct{}), make(chan error, 1)
	go func() { watched <- c.Watch(t.Context(), func(api.WatchEvent) error { close(watching); return nil }) }()
	<-watching
	stopped := make(chan error, 1)
	go func() { _, err := c.Stop(t.Context(), "x"); stopped <- err }()
	<-stopping
	cancel()
	if err := <-watched; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the watch ended with %v", err)
	}
	await(t, "end of listening", func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) })
	close(release)
	if err := <-stopped; err != nil {
		t.Errorf("the request under way got %v", err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("serving ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("serving does not end")
	}
}
