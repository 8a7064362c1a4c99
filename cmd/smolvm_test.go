package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/cmd/smolvm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// oneMachine is a machine in memory, behind the real server of smolvm's API. Its commands are of this test.
type oneMachine struct {
	server.Machines

	began, ended chan struct{}
}

const machineOfTest = "k8s-team-web-0123456789"

// Exec implements server.Machines.
func (m *oneMachine) Exec(ctx context.Context, name string, r api.ExecRequest, out, errs io.Writer) (int, error) {
	if name != machineOfTest {
		return 0, api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
	}
	switch r.Command[0] {
	case "cat":
		_, err := io.WriteString(out, r.Stdin)
		return 0, err
	case "show":
		fmt.Fprintf(out, "%q %v %s", r.Command, r.Env, r.Workdir)
		fmt.Fprint(errs, "done\n")
		return 7, nil
	}
	_, err := fmt.Fprint(out, "sleeping\n")
	close(m.began)
	<-ctx.Done()
	close(m.ended)
	return 0, errors.Join(err, ctx.Err())
}

// Logs implements server.Machines.
func (m *oneMachine) Logs(ctx context.Context, _ string, tail int, follow bool, out io.Writer) error {
	_, err := fmt.Fprintf(out, "%d lines\n", tail)
	if follow {
		close(m.began)
		<-ctx.Done()
		close(m.ended)
	}
	return err
}

// playedCluster is an API server that has some objects, and a kubelet that runs smolvm here, over the protocol of
// remote commands (v5.channel.k8s.io).
type playedCluster struct {
	t        *testing.T
	machines *oneMachine
	host     string
	objects  map[string]runtime.Object
	// refuse refuses commands, and unknown says that there are no such kinds.
	refuse, unknown bool

	mu   sync.Mutex
	path string
}

func newPlayedCluster(t *testing.T) (*playedCluster, string) {
	t.Helper()
	p := &playedCluster{t: t, machines: &oneMachine{began: make(chan struct{}), ended: make(chan struct{})}, objects: map[string]runtime.Object{
		"/apis/vm.smolvm.dev/v1alpha1/namespaces/team/smolvms/web": &v1alpha1.SmolVM{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}, Spec: v1alpha1.SmolVMSpec{Running: true},
			Status: v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning, NodeName: "node-1", MachineName: machineOfTest},
		},
		"/apis/vm.smolvm.dev/v1alpha1/smolvmnodes/node-1": &v1alpha1.SmolVMNode{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: v1alpha1.SmolVMNodeStatus{Endpoint: v1alpha1.Endpoint{PodNamespace: "smolvm-system", PodName: "smolvm-runtime-a"}},
		},
		"/api/v1/namespaces/smolvm-system/pods/smolvm-runtime-a": &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "smolvm-system", Name: "smolvm-runtime-a"}, Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		},
	}}
	smolvmd := httptest.NewServer(server.New(server.Options{Machines: p.machines, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() { smolvmd.CloseClientConnections(); smolvmd.Close() })
	p.host = smolvmd.URL
	cluster := httptest.NewServer(p)
	t.Cleanup(func() { cluster.CloseClientConnections(); cluster.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":%q}}],"contexts":[{"name":"a","context":{"cluster":"a","namespace":"team"}}],"current-context":"a"}`, cluster.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

func (p *playedCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, object any) {
		if failed, ok := object.(metav1.Status); ok {
			failed.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			object = failed
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(object)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no")).Status()
	object, there := p.objects[r.URL.Path]
	switch {
	case p.unknown:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case strings.HasSuffix(r.URL.Path, "/exec") && p.refuse:
		answer(http.StatusForbidden, forbidden)
	case strings.HasSuffix(r.URL.Path, "/exec"):
		p.mu.Lock()
		p.path = r.URL.Path + " " + r.URL.Query().Get("container")
		p.mu.Unlock()
		websocket.Server{Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = []string{"v5.channel.k8s.io"}
			return nil
		}, Handler: p.exec}.ServeHTTP(w, r)
	case object == nil && there:
		answer(http.StatusForbidden, forbidden)
	case object == nil:
		answer(http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{Group: "vm.smolvm.dev", Resource: "smolvms"}, "x").Status())
	default:
		answer(http.StatusOK, object)
	}
}

// exec runs smolvm as a container would. Its input ends with the connection.
func (p *playedCluster) exec(connection *websocket.Conn) {
	defer connection.Close()
	var sending sync.Mutex
	send := func(channel byte) io.Writer {
		return writerFunc(func(text []byte) (int, error) {
			sending.Lock()
			defer sending.Unlock()
			return len(text), websocket.Message.Send(connection, append([]byte{channel}, text...))
		})
	}
	in, feed := io.Pipe()
	go func() {
		defer feed.Close()
		for {
			var message []byte
			if err := websocket.Message.Receive(connection, &message); err != nil {
				return
			}
			if len(message) > 1 && message[0] == 0 {
				_, _ = feed.Write(message[1:])
			}
		}
	}()
	command := connection.Request().URL.Query()["command"]
	c := smolvm.New()
	c.SetIn(in)
	c.SetOut(send(1))
	c.SetErr(send(2))
	c.SetArgs(append(append([]string{}, command[1], "--host="+p.host), command[2:]...))
	status := metav1.Status{Status: metav1.StatusSuccess}
	if err := c.Execute(); err != nil || command[0] != "smolvm" {
		code := 1
		var exit *smolvm.ExitError
		if errors.As(err, &exit) {
			code = exit.Code
		}
		if exit == nil || exit.Err != nil {
			_, _ = fmt.Fprintln(send(2), "error:", err)
		}
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: fmt.Sprint(code)}}}}
	}
	text, _ := json.Marshal(status)
	_, _ = send(3).Write(text)
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// look runs a command of smolvm, and returns what it printed.
func look(kubeconfig string, in io.Reader, arguments ...string) (out, errs string, err error) {
	c := New()
	var stdout, stderr lockedBuffer // a stream that is cut may still be copied
	c.SetIn(in)
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(append([]string{"smolvm", arguments[0], "--kubeconfig=" + kubeconfig}, arguments[1:]...))
	err = c.Execute()
	return stdout.String(), stderr.String(), err
}

func TestGuestsAreReachedThroughTheRuntimesPod(t *testing.T) {
	large := strings.Repeat("x", maxGuestInput)
	for name, test := range map[string]struct {
		in        string
		arguments []string
		out, errs string
		code      int
	}{
		"logs":                            {arguments: []string{"logs", "web"}, out: "1000 lines\n"},
		"some of the logs":                {arguments: []string{"logs", "web", "-n", "team", "--tail=3"}, out: "3 lines\n"},
		"a command, its code and options": {arguments: []string{"exec", "web", "--env=A=b c", "--workdir=/srv", "--", "show", "-x", "a b", "--", "$HOME"}, out: `["show" "-x" "a b" "--" "$HOME"] [{A b c}] /srv`, errs: "done\n", code: 7},
		"a command with input":            {in: "hello\n", arguments: []string{"exec", "web", "-i", "--", "cat"}, out: "hello\n"},
		"a command with much input":       {in: large, arguments: []string{"exec", "web", "-i", "--", "cat"}, out: large},
		"a command with no input":         {arguments: []string{"exec", "web", "-i", "--", "cat"}},
		"input that is not passed on":     {in: "hello\n", arguments: []string{"exec", "web", "--", "cat"}},
		"an option that smolvm refuses":   {arguments: []string{"exec", "web", "--env=A", "--", "cat"}, errs: "error: ", code: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, kubeconfig := newPlayedCluster(t)
			out, errs, err := look(kubeconfig, strings.NewReader(test.in), test.arguments...)
			code := 0
			var exit *runner.ExitError
			if errors.As(err, &exit) {
				code = exit.Code
			}
			if (err == nil) != (test.code == 0) || code != test.code || out != test.out || !strings.HasPrefix(errs, test.errs) {
				t.Errorf("%v, code %d; printed %.200q and %q", err, code, out, errs)
			}
			if p.path != "/api/v1/namespaces/smolvm-system/pods/smolvm-runtime-a/exec smolvm-runtime" {
				t.Errorf("smolvm ran in %s", p.path)
			}
		})
	}
}

// TestCtrlCEndsWhatRunsInTheGuest: the connection is cut, and smolvm in the pod sees that by its input.
func TestCtrlCEndsWhatRunsInTheGuest(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		code      int
	}{
		"a command": {[]string{"exec", "web", "--", "sleep"}, exitInterrupted},
		"logs":      {[]string{"logs", "web", "--follow"}, 0},
		"a console": {[]string{"console", "web"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, kubeconfig := newPlayedCluster(t)
			ended := make(chan error, 1)
			go func() { _, _, err := look(kubeconfig, strings.NewReader(""), test.arguments...); ended <- err }()
			await(t, "it runs", p.machines.began)
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			await(t, "it has ended in the guest", p.machines.ended)
			var exit *runner.ExitError
			if err := <-ended; errors.As(err, &exit) != (test.code != 0) || exit != nil && (exit.Code != test.code || exit.Message != "") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func await(t *testing.T, what string, event chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(30 * time.Second):
		t.Fatalf("not in time: %s", what)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	const vm, node, pod = "/apis/vm.smolvm.dev/v1alpha1/namespaces/team/smolvms/web", "/apis/vm.smolvm.dev/v1alpha1/smolvmnodes/node-1", "/api/v1/namespaces/smolvm-system/pods/smolvm-runtime-a"
	exec, logs := []string{"exec", "web", "--", "cat"}, []string{"logs", "web"}
	changed := func(by func(*v1alpha1.SmolVM)) func(*playedCluster) {
		return func(p *playedCluster) { by(p.objects[vm].(*v1alpha1.SmolVM)) }
	}
	for name, test := range map[string]struct {
		prepare   func(p *playedCluster)
		arguments []string
		want      string
	}{
		"no SmolVM":             {func(p *playedCluster) { delete(p.objects, vm) }, logs, "SmolVM team/web does not exist; kubectl get smolvms --all-namespaces"},
		"SmolVMs are not known": {func(p *playedCluster) { p.unknown = true }, logs, "reading SmolVM team/web: the management cluster knows no SmolVMs: install the chart"},
		"no right on it":        {func(p *playedCluster) { p.objects[vm] = nil }, logs, "reading SmolVM team/web: pods \"a\" is forbidden: no; an administrator may run this command"},
		"it was stopped":        {changed(func(v *v1alpha1.SmolVM) { v.Spec.Running = false; v.Status.Phase = v1alpha1.PhaseStopped }), exec, `SmolVM team/web does not run: its phase is Stopped; start it with kubectl -n team patch smolvm web --type=merge -p '{"spec":{"running":true}}'`},
		"it is being started":   {changed(func(v *v1alpha1.SmolVM) { v.Status.Phase = v1alpha1.PhaseCreated }), exec, "its phase is Created; kubectl -n team get smolvm web -o wide says what it waits for"},
		"it has no node":        {changed(func(v *v1alpha1.SmolVM) { v.Status.NodeName = "" }), logs, "SmolVM team/web has no node: the controller has not seen it yet"},
		"no node suits": {changed(func(v *v1alpha1.SmolVM) {
			v.Status.NodeName, v.Status.Conditions = "", []metav1.Condition{{Type: v1alpha1.ConditionScheduled, Message: "node-1: its runtime is not ready"}}
		}), logs, "SmolVM team/web has no node: node-1: its runtime is not ready"},
		"a machine like a flag":   {changed(func(v *v1alpha1.SmolVM) { v.Status.MachineName = "--host=unix:///x" }), logs, "SmolVM team/web has no machine yet"},
		"no SmolVMNode":           {func(p *playedCluster) { delete(p.objects, node) }, logs, "SmolVMNode node-1 does not exist; the runtime of the node has never reported"},
		"a node without a pod":    {func(p *playedCluster) { p.objects[node].(*v1alpha1.SmolVMNode).Status.Endpoint.PodName = "" }, logs, "SmolVMNode node-1 does not say which pod"},
		"a pod that is gone":      {func(p *playedCluster) { delete(p.objects, pod) }, logs, "the pod smolvm-system/smolvm-runtime-a of the runtime of node node-1 is gone"},
		"a pod of another node":   {func(p *playedCluster) { p.objects[pod].(*corev1.Pod).Spec.NodeName = "node-2" }, logs, `which is on another node: "node-2"; do not trust that node`},
		"a pod that does not run": {func(p *playedCluster) { p.objects[pod].(*corev1.Pod).Status.Phase = corev1.PodPending }, logs, "does not run: it is Pending; kubectl -n smolvm-system get pods"},
		"no right to run there":   {func(p *playedCluster) { p.refuse = true }, exec, "it needs the rights to get and create pods/exec there, which make a user root on the node"},
		"no such machine":         {changed(func(v *v1alpha1.SmolVM) { v.Status.MachineName = "k8s-gone" }), exec, ""},
		"too much input":          {func(*playedCluster) {}, []string{"exec", "web", "-i", "--", "cat"}, "standard input has more than 1 MiB"},
		"no command":              {func(*playedCluster) {}, []string{"exec", "web"}, "requires at least 2 arg(s)"},
		"a negative tail":         {func(*playedCluster) {}, []string{"logs", "web", "--tail=-1"}, "--tail is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			p, kubeconfig := newPlayedCluster(t)
			test.prepare(p)
			_, errs, err := look(kubeconfig, strings.NewReader(strings.Repeat("x", maxGuestInput+1)), test.arguments...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			if test.want == "" && !strings.Contains(errs, "machine 'k8s-gone' not found") {
				t.Errorf("smolvm's words are %q", errs)
			}
		})
	}
}
