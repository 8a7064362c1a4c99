package smolvmruntime

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// node is a node API over a fake, with a certificate that its clients pin.
type node struct {
	fake      *fake
	api       *nodeAPI
	url       string
	address   string
	pool      *x509.CertPool
	tokenPath string
	stop      context.CancelFunc
}

const secret = "the-token"

func serveNode(t *testing.T) *node {
	t.Helper()
	socket := socketFor(t)
	n := serveNodeAt(t, socket)
	serveFake(t, n.fake, socket)
	return n
}

func serveNodeAt(t *testing.T, path string) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{fake: newFake(), tokenPath: filepath.Join(t.TempDir(), "token"), pool: x509.NewCertPool(), stop: cancel}
	n.setToken(t, secret)
	i := identityIn(t, t.TempDir(), time.Now())
	n.pool.AppendCertsFromPEM([]byte(i.Published()))
	n.api = &nodeAPI{auth: authenticators{tokenFile(n.tokenPath)}, proxy: newProxy(ctx, socket{path: path}, quiet), log: quiet, count: newMeters().request}
	listener := listen(t)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, newCrowd(listener, maxConnections, maxPerSource), n.api, secure(i), quiet) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	n.address = listener.Addr().String()
	n.url = "https://" + n.address
	return n
}

// setToken replaces the file as kubelet does, at once.
func (n *node) setToken(t *testing.T, token string) {
	t.Helper()
	if err := os.WriteFile(n.tokenPath+".new", []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.tokenPath+".new", n.tokenPath); err != nil {
		t.Fatal(err)
	}
}

func (n *node) tls() *tls.Config { return &tls.Config{RootCAs: n.pool, MinVersion: tls.VersionTLS12} }

func (n *node) client(t *testing.T, token func() string) *api.Client {
	t.Helper()
	c, err := api.NewClient(n.url, api.Options{TLS: n.tls(), Token: func() (string, error) { return token(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func always(token string) func() string { return func() string { return token } }

// answered is an answer without its body.
type answered struct {
	StatusCode int
	Header     http.Header
}

// do makes a request with the token.
func (n *node) do(t *testing.T, method, path, body string, header http.Header) (answered, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	for name, values := range header {
		request.Header[name] = values
	}
	transport := &http.Transport{TLSClientConfig: n.tls(), DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{answer.StatusCode, answer.Header}, string(text)
}

func TestSmolvmAnswersThroughTheNode(t *testing.T) {
	n := serveNode(t)
	c := n.client(t, always(secret))
	ctx := t.Context()
	owner := &api.Owner{Cluster: "c", Namespace: "n", Name: "x", UID: "u"}
	made, err := c.Create(ctx, api.CreateRequest{Name: "m", Image: "alpine", Owner: owner})
	if err != nil || made.Name != "m" || made.Owner == nil || *made.Owner != *owner {
		t.Fatalf("%+v: %v", made, err)
	}
	if _, err := c.Create(ctx, api.CreateRequest{Name: "m", Image: "alpine"}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a second machine of the name: %v", err)
	}
	if m, err := c.Start(ctx, "m", api.StartRequest{}); err != nil || m.State != api.StateRunning {
		t.Errorf("%+v: %v", m, err)
	}
	if _, err := c.Start(ctx, "taken", api.StartRequest{RegistryAuth: &api.RegistryAuth{Username: "u"}}); api.CodeOf(err) != api.CodePortInUse {
		t.Errorf("a port that is taken: %v", err)
	}
	size := int64(1)
	if _, err := c.Resize(ctx, "m", api.ResizeRequest{StorageGB: &size}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("growing a machine that runs: %v", err)
	}
	if e, err := c.Exec(ctx, "m", api.ExecRequest{Command: []string{"echo"}}); err != nil || e.ExitCode != 42 || e.Stdout != "echo\n" {
		t.Errorf("%+v: %v", e, err)
	}
	if all, err := c.List(ctx); err != nil || len(all) != 1 {
		t.Errorf("%v: %v", all, err)
	}
	if _, err := c.EgressEvents(ctx, "m", 5); err != nil {
		t.Error(err)
	}
	if m, err := c.Stop(ctx, "m"); err != nil || m.State != api.StateStopped {
		t.Errorf("%+v: %v", m, err)
	}
	if err := c.Delete(ctx, "m"); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(ctx, "m"); !api.IsNotFound(err) {
		t.Errorf("a machine that is gone: %v", err)
	}
	if err := c.Drain(ctx); err == nil || api.IsNotFound(err) || n.fake.drained != 0 {
		t.Errorf("a client can drain the node: %v", err)
	}
}

// TestStreamsComeAtOnce: each part arrives before the next is made.
func TestStreamsComeAtOnce(t *testing.T) {
	n := serveNode(t)
	n.fake.put(api.Machine{Name: "m", State: api.StateRunning})
	c := n.client(t, always(secret))
	for path, method := range map[string]string{"/logs": http.MethodGet, "/exec/stream": http.MethodPost} {
		if answer, body := n.do(t, method, "/api/v1/machines/m"+path, "", nil); answer.StatusCode != http.StatusNotFound || !strings.Contains(body, "no such path") {
			t.Errorf("%s without the setting: %d %s", path, answer.StatusCode, body)
		}
	}
	n.api.guests = true
	release := sync.OnceFunc(func() { close(n.fake.follow) })
	defer release()
	var output bytes.Buffer
	code, err := c.ExecStream(t.Context(), "m", api.ExecRequest{Command: []string{"wait"}}, writerFunc(func(p []byte) (int, error) {
		release()
		return output.Write(p)
	}), io.Discard)
	if err != nil || code != 42 || output.String() != "wait\n" {
		t.Errorf("code %d, %q: %v", code, output.String(), err)
	}
	output.Reset()
	if err := c.Logs(t.Context(), "m", api.LogsOptions{Follow: true}, &output); err != nil || output.String() != "boot\nend\n" {
		t.Errorf("%q: %v", output.String(), err)
	}
	var events []api.WatchEvent
	enough := errors.New("enough")
	err = c.Watch(t.Context(), func(e api.WatchEvent) error {
		events = append(events, e)
		if e.Type == api.WatchSnapshot {
			go n.fake.put(api.Machine{Name: "other", State: api.StateCreated})
			return nil
		}
		return enough
	})
	if !errors.Is(err, enough) || len(events) != 2 || events[1].Type != api.WatchChanged || events[1].Machine.Name != "other" {
		t.Errorf("%+v: %v", events, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStreamsEndWithTheAgent: a watch does not hold the agent up.
func TestStreamsEndWithTheAgent(t *testing.T) {
	n := serveNode(t)
	c := n.client(t, always(secret))
	began := time.Now()
	err := c.Watch(t.Context(), func(api.WatchEvent) error { n.stop(); return nil })
	if took := time.Since(began); err == nil || took > graceTime+5*time.Second {
		t.Errorf("it ended after %s: %v", took, err)
	}
}

func TestAnswersOfTheNodeItself(t *testing.T) {
	n := serveNode(t)
	none := http.Header{"Authorization": nil}
	facts := &told{
		health: Health{OK: true, SocketReady: true, StateReady: true, Message: healthy}, identity: Identity{NodeName: "node-1", NodeUID: "u"},
		capabilities: Capabilities{RuntimeVersion: "1", ProtocolVersion: "v1alpha1", CPUs: 8, MemoryMiB: 9, StorageGiB: 10},
	}
	for sentence, test := range map[string]struct {
		told         *told
		method, path string
		header       http.Header
		status       int
		body         string
	}{
		"health needs no token":                  {facts, "GET", "/healthz", none, 200, `{"ok":true,"kvmAvailable":false,"socketReady":true,"stateReady":true,"message":"runtime healthy"}`},
		"nor does the proof of life":             {nil, "GET", "/livez", none, 200, `{"status":"ok"}`},
		"an unhealthy node says so":              {&told{health: Health{Message: "KVM unavailable"}}, "GET", "/healthz", none, 503, `{"ok":false,"kvmAvailable":false,"socketReady":false,"stateReady":false,"message":"KVM unavailable"}`},
		"before the first check it is unhealthy": {nil, "GET", "/healthz", none, 503, `{"ok":false,"kvmAvailable":false,"socketReady":false,"stateReady":false,"message":"the runtime starts"}`},
		"health is read":                         {facts, "POST", "/healthz", none, 405, `{"error":"the method \"POST\" is not for this path","code":"METHOD_NOT_ALLOWED"}`},
		"identity":                               {facts, "GET", "/api/v1/identity", nil, 200, `{"nodeName":"node-1","nodeUID":"u"}`},
		"identity before the first look":         {nil, "GET", "/api/v1/identity", nil, 503, `{"error":"the runtime starts","code":"UNAVAILABLE"}`},
		"identity is not for strangers":          {facts, "GET", "/api/v1/identity", none, 401, `{"error":"unauthorized","code":"UNAUTHORIZED"}`},
		"capabilities":                           {facts, "GET", "/api/v1/capabilities", nil, 200, `{"runtimeVersion":"1","protocolVersion":"v1alpha1","cpus":8,"memoryMiB":9,"storageGiB":10,"kvmAvailable":false}`},
		"they cannot be changed":                 {facts, "PUT", "/api/v1/capabilities", nil, 405, `{"error":"the method \"PUT\" is not for this path","code":"METHOD_NOT_ALLOWED"}`},
		"machines are not for strangers":         {facts, "GET", "/api/v1/machines", none, 401, `{"error":"unauthorized","code":"UNAUTHORIZED"}`},
		"a wrong token is a stranger's":          {facts, "GET", "/api/v1/machines", http.Header{"Authorization": {"Bearer the-tokem"}}, 401, `{"error":"unauthorized","code":"UNAUTHORIZED"}`},
		"strangers do not learn which paths are": {facts, "GET", "/nowhere", none, 401, `{"error":"unauthorized","code":"UNAUTHORIZED"}`},
		"a path that is not has no code":         {facts, "GET", "/nowhere", nil, 404, `{"error":"there is no such path","code":""}`},
		"machines have two methods":              {facts, "PATCH", "/api/v1/machines", nil, 405, `{"error":"the method \"PATCH\" is not for this path","code":"METHOD_NOT_ALLOWED"}`},
		"a name that is none":                    {facts, "GET", "/api/v1/machines/a.b", nil, 400, `{"error":"the path has no name of a machine","code":"BAD_REQUEST"}`},
		"smolvm's words are its own":             {facts, "GET", "/api/v1/machines/none", nil, 404, `{"error":"machine 'none' not found","code":"NOT_FOUND"}`},
		"smolvm refuses what is no JSON":         {facts, "POST", "/api/v1/machines", nil, 415, "Expected request with `Content-Type: application/json`"},
	} {
		t.Run(sentence, func(t *testing.T) {
			n.api.told.Store(test.told)
			answer, body := n.do(t, test.method, test.path, "", test.header)
			if answer.StatusCode != test.status || strings.TrimSpace(body) != test.body {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
			if test.status == http.StatusUnauthorized && answer.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Error("the answer does not say how to authenticate")
			}
			if test.status == http.StatusMethodNotAllowed && answer.Header.Get("Allow") == "" {
				t.Error("the answer does not say what is allowed")
			}
			if strings.HasPrefix(test.body, "{") && answer.Header.Get("Content-Type") != "application/json" {
				t.Errorf("the answer is %s", answer.Header.Get("Content-Type"))
			}
		})
	}
}

func TestMachinesThatArePoweredDownForGood(t *testing.T) {
	n := serveNode(t)
	n.fake.put(api.Machine{Name: "m", State: api.StateStopped})
	n.api.draining.Store(true)
	c := n.client(t, always(secret))
	if _, err := c.Start(t.Context(), "m", api.StartRequest{}); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("a machine is started: %v", err)
	}
	if _, err := c.Get(t.Context(), "m"); err != nil {
		t.Error(err)
	}
}

func TestNoSmolvmBehindTheNode(t *testing.T) {
	n := serveNodeAt(t, socketFor(t))
	answer, body := n.do(t, http.MethodGet, "/api/v1/machines", "", nil)
	if answer.StatusCode != http.StatusServiceUnavailable || body != `{"error":"smolvm does not answer on this node","code":"UNAVAILABLE"}`+"\n" {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}

// TestSizesOfRequests: half of a body never reaches smolvm.
func TestSizesOfRequests(t *testing.T) {
	n := serveNode(t)
	isJSON := http.Header{"Content-Type": {"application/json"}}
	for sentence, test := range map[string]struct {
		fill   int
		status int
	}{
		"what smolvm takes": {1 << 20, http.StatusOK},
		"one byte too much": {maxBody, http.StatusRequestEntityTooLarge},
	} {
		t.Run(sentence, func(t *testing.T) {
			body := `{"command":["` + strings.Repeat("x", test.fill) + `"]}`
			answer, text := n.do(t, http.MethodPost, "/api/v1/machines/m/exec", body, isJSON)
			if answer.StatusCode != test.status {
				t.Errorf("%d %.200s", answer.StatusCode, text)
			}
			for _, command := range n.fake.executed() {
				if len(command) != 1<<20 {
					t.Errorf("smolvm was given %d bytes", len(command))
				}
			}
		})
	}
}

// TestTheTokenIsReplacedUnderLoad: at each time, exactly the token in the file is right.
func TestTheTokenIsReplacedUnderLoad(t *testing.T) {
	n := serveNode(t)
	var current atomic.Value
	current.Store(secret)
	wrong := n.client(t, always("never-right"))
	right := n.client(t, func() string { return current.Load().(string) })
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var accepted, refused atomic.Int64
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := wrong.List(ctx); ctx.Err() == nil && api.CodeOf(err) != api.CodeUnauthorized {
					t.Errorf("a wrong token: %v", err)
				}
				refused.Add(1)
				// Between the file and the variable, the token may be the one before; nothing else goes wrong.
				if _, err := right.List(ctx); err == nil {
					accepted.Add(1)
				} else if ctx.Err() == nil && api.CodeOf(err) != api.CodeUnauthorized {
					t.Errorf("a right token: %v", err)
				}
			}
		})
	}
	for i := range 20 {
		token := strings.Repeat("x", i+1)
		n.setToken(t, token)
		if _, err := right.List(t.Context()); i > 0 && api.CodeOf(err) != api.CodeUnauthorized {
			t.Errorf("the token before is still right: %v", err)
		}
		current.Store(token)
		if _, err := right.List(t.Context()); err != nil {
			t.Errorf("the new token is not right: %v", err)
		}
	}
	cancel()
	group.Wait()
	if accepted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d accepted, %d refused", accepted.Load(), refused.Load())
	}
}
