package smolvmruntime

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// rights are all that an agent may do.
var rights = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
	{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{DefaultDaemonSet}, Verbs: []string{"get"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"smolvmnodes"}, Verbs: []string{"get", "create", "patch"}},
	{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"smolvmnodes/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"smolvms"}, Verbs: []string{"get", "list"}},
}

// asRuntime returns a client of a ServiceAccount with these rights.
func asRuntime(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(served(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "smolvm-runtime"}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: rights},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name.Name}},
		},
	} {
		if err := admin.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	own := rest.AnonymousClientConfig(served(t))
	own.BearerToken = tokenOf(t, direct(t), name.Name, "")
	c, err := NewClient(own)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rights are there", func() bool {
		return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKey{Name: "none"}, &v1alpha1.SmolVMNode{})) == nil
	})
	return c
}

// running is an agent with a child that is smolvm over a fake.
type running struct {
	settings Settings
	output   *lines
	admin    client.Client
	stop     func() error
}

func runAgent(t *testing.T, name string, change func(*Settings)) *running {
	t.Helper()
	r := &running{output: &lines{}, admin: direct(t)}
	r.settings = Settings{
		Node: name, PodName: "pod", PodNamespace: "default", PodIP: "127.0.0.1", DaemonSet: DefaultDaemonSet, Version: "1.2.3",
		BindAddress: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", Socket: socketFor(t), State: t.TempDir(), ReportInterval: DefaultReportInterval,
		Orphans: OrphansReport, Controller: "default/smolvm-controller", Audience: DefaultAudience, HangTimeout: DefaultHangTimeout,
	}
	r.settings.Command = []string{os.Args[0], r.settings.Socket}
	t.Setenv(childVariable, "smolvm")
	if change != nil {
		change(&r.settings)
	}
	if err := r.settings.Validate(); err != nil {
		t.Fatal(err)
	}
	agent, err := New(r.settings, asRuntime(t), r.output, quiet)
	if err != nil {
		t.Fatal(err)
	}
	agent.look = 50 * time.Millisecond
	agent.supervisor.first = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// ready waits until the SmolVMNode is ready, and returns it.
func (r *running) ready(t *testing.T) *v1alpha1.SmolVMNode {
	t.Helper()
	node := &v1alpha1.SmolVMNode{}
	eventually(t, "the SmolVMNode is ready", func() bool {
		return r.admin.Get(t.Context(), client.ObjectKey{Name: r.settings.Node}, node) == nil && meta.IsStatusConditionTrue(node.Status.Conditions, v1alpha1.NodeConditionSchedulable)
	})
	return node
}

// controller returns a client as the controller has it: it knows the SmolVMNode and has a token.
func (r *running) controller(t *testing.T, node *v1alpha1.SmolVMNode) *api.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(node.Status.Endpoint.Certificate)) {
		t.Fatal("the SmolVMNode has no certificate")
	}
	token := tokenOf(t, r.admin, "smolvm-controller", DefaultAudience)
	c, err := api.NewClient(fmt.Sprintf("https://%s:%d", node.Status.Endpoint.PodIP, node.Status.Endpoint.Port), api.Options{
		TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, Token: func() (string, error) { return token, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestAnAgentAsAWhole: an agent with no more rights than it needs starts smolvm, reports it, serves a controller, and
// replaces a smolvm that was killed.
func TestAnAgentAsAWhole(t *testing.T) {
	admin := direct(t)
	makeNode(t, admin, "whole")
	r := runAgent(t, "whole", nil)
	node := r.ready(t)
	c := r.controller(t, node)
	if _, err := c.Create(t.Context(), api.CreateRequest{Name: "m", Image: "alpine"}); err != nil {
		t.Fatal(err)
	}
	first := r.output.pid(t, "pid")
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another smolvm answers", func() bool {
		_, err := c.List(t.Context())
		return err == nil && r.output.pid(t, "pid") != first
	})
	r.ready(t)
	second := r.output.pid(t, "pid")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if lives(second) || len(r.output.all("stopped")) != 1 {
		t.Error("smolvm has not ended in order")
	}
	if len(r.output.all("drained")) != 0 {
		t.Error("machines were powered down without need")
	}
}

// TestTheRuntimeIsRemoved: when the DaemonSet goes, machines are powered down before smolvm ends.
func TestTheRuntimeIsRemoved(t *testing.T) {
	admin := direct(t)
	labels := map[string]string{"app": "smolvm-runtime"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: DefaultDaemonSet}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
	}}
	for sentence, test := range map[string]struct {
		remove bool
		drains int
	}{"a pod that is replaced": {false, 0}, "a DaemonSet that is deleted": {true, 1}} {
		t.Run(sentence, func(t *testing.T) {
			mine := set.DeepCopy()
			if err := admin.Create(t.Context(), mine); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Delete(context.Background(), set.DeepCopy()) })
			makeNode(t, admin, "removed")
			r := runAgent(t, "removed", nil)
			r.ready(t)
			if test.remove {
				if err := admin.Delete(t.Context(), mine); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			if drains := len(r.output.all("drained")); drains != test.drains {
				t.Errorf("machines were powered down %d times", drains)
			}
		})
	}
}

func TestAddressesThatAreTaken(t *testing.T) {
	taken := listen(t)
	defer taken.Close()
	for _, change := range []func(*Settings){
		func(s *Settings) { s.BindAddress = taken.Addr().String() },
		func(s *Settings) { s.MetricsAddress = taken.Addr().String() },
	} {
		s := Settings{Node: "n", BindAddress: "127.0.0.1:0", Socket: socketFor(t), State: t.TempDir(), ReportInterval: time.Minute, InsecureNoAuth: true}
		change(&s)
		agent, err := New(s, direct(t), &lines{}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestMetrics(t *testing.T) {
	m := newMeters()
	m.request("BREW", "other", 405)
	m.health(true)
	m.report(nil, time.Unix(5, 0))
	m.report(io.EOF, time.Unix(6, 0))
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, m.handler(), nil, quiet) }()
	answer, err := http.Get("http://" + listener.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text := read(answer.Body)
	answer.Body.Close()
	for _, want := range []string{
		`smolvm_runtime_requests_total{method="other",path="other",status="405"} 1`, `smolvm_runtime_ready 1`, `smolvm_runtime_last_report_seconds 5`,
		`smolvm_runtime_reports_total{result="error"} 1`, `smolvm_runtime_orphans 0`, `smolvm_runtime_kept_machines 0`, `smolvm_runtime_orphans_deleted_total 0`, `smolvm_runtime_smolvm_starts_total 0`, `smolvm_runtime_certificate_end_seconds 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "smolvm-runtime.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok && !strings.Contains(string(page), "`"+strings.Fields(name)[0]+"`") {
			t.Errorf("docs/smolvm-runtime.md does not have %s", name)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
