package managementcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

func TestStopLeavesNothingBehind(t *testing.T) {
	cluster := start(t, managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	pids := map[managementcluster.Component]int{}
	for _, name := range everyComponent {
		if pids[name] = cluster.PID(name); !alive(pids[name]) {
			t.Fatalf("%s does not run as process %d", name, pids[name])
		}
	}
	for range 2 { // stopping a stopped cluster is not an error
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("%s still runs as process %d", name, pid)
		}
	}
	if _, err := os.Stat(cluster.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory %s is still there (%v)", cluster.Dir(), err)
	}
	if err := cluster.StartComponent(t.Context(), managementcluster.Etcd); err == nil {
		t.Error("a component of a stopped cluster was started")
	}
}

func TestStartAfterCrashContinuesTheState(t *testing.T) {
	dir := t.TempDir()
	crashed := start(t, managementcluster.Options{Dir: dir, ControllerManager: true})
	createNamespace(t, core(t, crashed), "survivor")
	for _, name := range everyComponent {
		if pid := crashed.PID(name); pid != 0 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatalf("killing %s: %v", name, err)
			}
		}
	}
	if _, err := managementcluster.Start(t.Context(), managementcluster.Options{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "another management cluster runs in "+dir) {
		t.Errorf("Start in the directory of a cluster that was not stopped returned %v", err)
	}
	if err := crashed.Stop(); err != nil {
		t.Fatal(err)
	}

	second := start(t, managementcluster.Options{Dir: dir, ControllerManager: true})
	if _, err := core(t, second).Namespaces().Get(t.Context(), "survivor", metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace did not survive the crash: %v", err)
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
		t.Errorf("Stop removed state of a directory that is not its own: %v", err)
	}
}

func TestAPIServerCanBeTakenAwayAndBack(t *testing.T) {
	cluster := start(t, managementcluster.Options{})
	client := core(t, cluster)
	if err := cluster.StopComponent(managementcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
		t.Error("the API server answers although it was stopped")
	}
	if err := cluster.StartComponent(t.Context(), managementcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("an old client does not reach the API server that came back: %v", err)
	}
	if err := cluster.Restart(t.Context(), managementcluster.Etcd); err != nil {
		t.Fatal(err)
	}
}

func TestUsersHaveTheRightsOfRBAC(t *testing.T) {
	cluster := start(t, managementcluster.Options{Audit: true})
	config, err := cluster.RESTConfigFor("ada", "developers")
	if err != nil {
		t.Fatal(err)
	}
	_, err = coreFor(t, config).Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights got %v", err)
	}

	requests, err := cluster.Requests(func(r managementcluster.Request) bool { return r.User == "ada" })
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 1 {
		t.Fatalf("ada made one request, recorded are %v", requests)
	}
	want := managementcluster.Request{
		User: "ada", UserAgent: requests[0].UserAgent, Verb: "get", Resource: "secrets", Namespace: "default",
		Name: "token", Code: 403,
	}
	if requests[0] != want {
		t.Errorf("recorded is %+v, want %+v", requests[0], want)
	}
}

func TestStartSaysWhatStoppedIt(t *testing.T) {
	for name, test := range map[string]struct {
		options managementcluster.Options
		want    []string
	}{
		"a component that refuses its flags": {
			options: managementcluster.Options{
				Flags: map[managementcluster.Component][]string{managementcluster.APIServer: {"--no-such-flag"}},
			},
			want: []string{"kube-apiserver has ended", "kube-apiserver.log", "unknown flag: --no-such-flag"},
		},
		"a missing tool": {
			options: managementcluster.Options{Tools: t.TempDir()},
			want:    []string{"the tool etcd is missing", "make tools"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Dir = t.TempDir()
			_, err := managementcluster.Start(t.Context(), test.options)
			if err == nil {
				t.Fatal("Start succeeded")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestFailedStartKeepsOnlyItsLogs(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	_, err := managementcluster.Start(t.Context(), managementcluster.Options{
		Flags: map[managementcluster.Component][]string{managementcluster.APIServer: {"--no-such-flag"}},
	})
	if err == nil {
		t.Fatal("Start succeeded")
	}
	for pattern, want := range map[string]int{"*/kube-apiserver.log": 1, "*/etcd": 0, "*/*.pid": 0} {
		found, err := filepath.Glob(filepath.Join(temporary, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != want {
			t.Errorf("the failed start left %v, want %d files %s", found, want, pattern)
		}
	}
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, interrupt := context.WithCancel(t.Context())
	_, err := managementcluster.Start(ctx, managementcluster.Options{
		Output: writerFunc(func(string) { interrupt() }), // at the first component that is ready
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted start returned %v", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the interrupted start left %v (%v)", left, err)
	}
}

func TestStartTriesOtherPorts(t *testing.T) {
	taken := listenBelow(t, 32768)
	defer taken.Close()
	retried := false
	cluster, err := managementcluster.Start(t.Context(), managementcluster.Options{
		Flags: map[managementcluster.Component][]string{
			managementcluster.Etcd: {"--listen-peer-urls=http://" + taken.Addr().String()},
		},
		Output: writerFunc(func(line string) {
			if strings.Contains(line, "trying other ports") {
				retried = true
				taken.Close()
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !retried {
		t.Error("the first start did not fail, although a port was taken")
	}
	if err := cluster.Stop(); err != nil {
		t.Error(err)
	}
}

// listenBelow listens on a port below another one, such as the first of those for outgoing connections, one of which may
// get the port as soon as it is free.
func listenBelow(t *testing.T, port int) net.Listener {
	t.Helper()
	for port--; ; port-- {
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return listener
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

type writerFunc func(string)

func (f writerFunc) Write(line []byte) (int, error) { f(string(line)); return len(line), nil }

func TestStartIsQuick(t *testing.T) {
	began := time.Now()
	start(t, managementcluster.Options{})
	// It takes four seconds on an idle machine with two cores. The bound is for a busy one.
	if took := time.Since(began); took > time.Minute {
		t.Errorf("etcd and API server took %v to start", took)
	}
}
