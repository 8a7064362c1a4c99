package cloudconfig

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
)

// Starts the control plane of a master from its boot data: the real binaries, with the rendered commands and files.
// Only paths and ports differ from those in a guest.
func TestTheControlPlaneOfAMasterWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	m := newTestMaster(t)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		m.start(t, name)
	}
	admin := m.params.Certificates[pki.Operator]

	m.eventually(t, "an anonymous request finds the API server ready", m.api("GET", "/readyz", "", nil, nil), 200)
	m.eventually(t, "an anonymous request for anything else is refused", m.api("GET", "/version", "", nil, nil), 401)
	m.eventually(t, "the holder of the operator's certificate is an administrator", m.api("GET", "/api/v1/secrets", "", &admin, nil), 200)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
	m.eventually(t, "the controller manager leads", m.api("GET", leases+"kube-controller-manager", "", &admin, nil), 200)
	m.eventually(t, "the scheduler leads", m.api("GET", leases+"kube-scheduler", "", &admin, nil), 200)
	const account = "/api/v1/namespaces/default/serviceaccounts/default"
	m.eventually(t, "controllers work, with their own accounts", m.api("GET", account, "", &admin, nil), 200)
	m.eventually(t, "a Secret is stored", m.api("POST", "/api/v1/namespaces/kube-system/secrets", "", &admin, []byte(bootstrapSecret)), 201)
	m.eventually(t, "a privileged pod is not refused", m.api("POST", "/api/v1/namespaces/default/pods", "", &admin, []byte(privilegedPod)), 201)
	m.eventually(t, "an event is taken", m.api("POST", "/api/v1/namespaces/default/events", "", &admin, []byte(testEvent)), 201)
	m.eventually(t, "the bootstrap token is believed, and may do nothing yet", m.api("GET", "/api/v1/nodes", testToken, nil, nil), 403)

	stored := m.read(t, "var/lib/etcd")
	if !bytes.Contains(stored, []byte("k8s:enc:secretbox:v1:key1:")) || bytes.Contains(stored, []byte("0123456789abcdef")) {
		t.Error("the Secret is not encrypted in etcd")
	}
	if !bytes.Contains(stored, []byte("/giantswarm.io/")) {
		t.Error("etcd does not hold keys below the prefix")
	}
	audit := m.read(t, "var/log/apiserver")
	if !bytes.Contains(audit, []byte(`"resource":"secrets"`)) || bytes.Contains(audit, []byte("MDEyMzQ1Njc4OWFiY2RlZg==")) {
		t.Error("the audit log lacks the request for the Secret or holds its content")
	}
	if !bytes.Contains(audit, []byte(`"pod-security.kubernetes.io/audit-violations":"would violate PodSecurity \"baseline`)) {
		t.Error("the audit log does not say what is wrong with the privileged pod")
	}
	// The leases that this test requests are logged, as a person's would be.
	noise := regexp.MustCompile(`"username":"system:[^\n]*"resource":"leases"|"resource":"events"|"requestURI":"/readyz|"stage":"RequestReceived"`)
	if found := noise.Find(audit); found != nil {
		t.Errorf("the audit log has noise: %s", found)
	}
}

// bootstrapSecret is testToken as the API server looks it up.
const bootstrapSecret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bootstrap-token-abcdef"},"type":"bootstrap.kubernetes.io/token",
"data":{"token-id":"YWJjZGVm","token-secret":"MDEyMzQ1Njc4OWFiY2RlZg==","usage-bootstrap-authentication":"dHJ1ZQ=="}}`

const privilegedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"privileged"},
"spec":{"containers":[{"name":"c","image":"registry.invalid/c","securityContext":{"privileged":true}}]}}`

const testEvent = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"tested"},"involvedObject":{"kind":"Pod","namespace":"default","name":"privileged"},"reason":"Tested"}`

// testMaster is a master whose files are below a directory.
type testMaster struct {
	root     string
	params   Params
	data     BootData
	replacer *strings.Replacer
	ports    map[string]int
	log      *os.File
}

func newTestMaster(t *testing.T) *testMaster {
	m := &testMaster{root: t.TempDir(), ports: map[string]int{}}
	for _, name := range []string{"api", "2379", "2380", "2381", "10257", "10259"} {
		m.ports[name] = freePort(t)
	}
	p := masterParams()
	p.Cluster.Kubernetes.API.SecurePort = int32(m.ports["api"])
	p.Settings.OIDC = v1alpha1.OIDC{IssuerURL: "https://dex.invalid", ClientID: "k", UsernamePrefix: "oidc:", GroupsClaim: "groups"}
	completed, err := pkitest.Complete(nil, pki.Requests(p.Cluster, "cluster.local"), pki.Embedded{Clock: clock.RealClock{}}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Certificates = pki.Trust(completed.Set, pki.Requests(p.Cluster, "cluster.local"))
	p.EtcdMembers = []Member{{Name: pki.EtcdMember(p.Node.ID), PeerURL: "https://localhost:2380"}}
	m.params, m.data = p, mustRender(t, p)

	pairs := []string{"$(NODE_IP)", localhost}
	for _, dir := range []string{"/etc/kubernetes", etcdDirectory, auditLogDirectory} {
		pairs = append(pairs, dir, m.root+dir)
	}
	for _, port := range []string{"2379", "2380", "2381"} {
		pairs = append(pairs, ":"+port, fmt.Sprintf(":%d", m.ports[port]))
	}
	m.replacer = strings.NewReplacer(pairs...)
	for _, f := range slices.Concat(m.data.Public.Storage.Files, m.data.Private.Storage.Files) {
		if strings.HasPrefix(f.Path, "/etc/kubernetes/") {
			write(t, m.root, f.Path, m.replacer.Replace(content(t, f)), os.FileMode(*f.Mode))
		}
	}
	if m.log, err = os.Create(filepath.Join(m.root, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.log.Close() })
	return m
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start runs a component as the kubelet would: it restarts it until the test is over.
func (m *testMaster) start(t *testing.T, name string) {
	command := slices.Clone(staticPod(t, m.data, name).Spec.Containers[0].Command)
	for i := range command {
		command[i] = m.replacer.Replace(command[i])
	}
	switch name {
	case "kube-controller-manager":
		command = append(command, fmt.Sprintf("--secure-port=%d", m.ports["10257"]))
	case "kube-scheduler":
		command = append(command, fmt.Sprintf("--secure-port=%d", m.ports["10259"]))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	path := tool(t, name)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c := exec.CommandContext(ctx, path, command[1:]...)
			c.Args[0], c.Stdout, c.Stderr = name, m.log, m.log
			// It dies with the test, even if that is killed.
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			_ = c.Run() // it ends by being killed, or is restarted
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// api returns a request to the API server that returns the status code.
func (m *testMaster) api(method, path, token string, identity *pki.KeyPair, body []byte) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(m.params.Certificates[pki.CA].CA)
		config := &tls.Config{RootCAs: roots}
		if identity != nil {
			pair, err := tls.X509KeyPair(identity.Certificate, identity.Key)
			if err != nil {
				return 0, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("https://127.0.0.1:%d%s", m.ports["api"], path), bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		request.Header.Set("Content-Type", "application/json")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
}

func (m *testMaster) eventually(t *testing.T, what string, ask func(context.Context) (int, error), want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		got, err := ask(ctx)
		if err == nil && got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: got %d, %v; want %d\n%s", what, got, err, want, m.errors())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// errors returns the last lines of the components' logs that look like errors.
func (m *testMaster) errors() string {
	raw, _ := os.ReadFile(m.log.Name())
	lines := regexp.MustCompile(`(?m)^(E\d|F\d|Error|\{"level":"(fatal|error)).*$`).FindAllString(string(raw), -1)
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// read returns the content of all files below a directory.
func (m *testMaster) read(t *testing.T, dir string) []byte {
	var all []byte
	err := filepath.WalkDir(filepath.Join(m.root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		all = append(all, raw...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
