package guests_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// smolVMs is the chart with SmolVMs on the cluster.
type smolVMs struct {
	t       *testing.T
	cluster *realcluster.Cluster
	begin   time.Time
	// registry has the images of machines.
	registry string
}

const (
	smolNamespace = "smolvm-system"
	smolRelease   = "smol"
)

// smolImage is the image of the runtime, and of the controller: it has the operator, too.
func smolImage() string {
	return "docker.io/kvm-operator/kvm-operator-smolvm-runtime:" + project.Version()
}

// install installs the chart, or changes it. Later values count.
func (s *smolVMs) install(values ...string) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), tools+"/helm", append([]string{
		"upgrade", "--install", smolRelease, "../../../helm/kvm-operator",
		"--namespace=" + smolNamespace, "--create-namespace", "--kubeconfig=" + s.cluster.Kubeconfig(), "--wait", "--timeout=4m", "--skip-crds",
		"--set=smolvm.enabled=true", "--set=smolvm.image=" + smolImage(), "--set=smolvm.runtime.image=" + smolImage(), "--set=smolvm.allowEmulation=true",
		"--set=smolvm.cgroupParent=" + s.cluster.Node(0).Cgroup() + "/smolvm", "--set=smolvm.registries.mirrors.docker\\.io=" + s.registry,
		"--set=smolvm.registries.insecure={" + s.registry + "}", "--set=replicas=0",
	}, values...)...)
	var said strings.Builder
	command.Stdout, command.Stderr = &said, &said
	if err := s.cluster.Run(command); err != nil {
		pods, _ := s.cluster.Kubectl(s.t.Context(), "--namespace="+smolNamespace, "describe", "pods")
		s.t.Fatalf("%v: %s\n%s", err, &said, pods)
	}
	s.say("the chart is installed")
}

func (s *smolVMs) say(what string) {
	s.t.Logf("%4.0fs %s", time.Since(s.begin).Seconds(), what)
}

func (s *smolVMs) kubectl(arguments ...string) string {
	s.t.Helper()
	out, err := s.cluster.Kubectl(s.t.Context(), arguments...)
	if err != nil {
		s.t.Fatalf("kubectl %s: %v: %s", strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// await waits for a condition of a SmolVM.
func (s *smolVMs) await(what, condition string) {
	s.t.Helper()
	out, err := s.cluster.Kubectl(s.t.Context(), "--namespace=team", "wait", "--for="+condition, "smolvm/web", "--timeout=180s")
	if err != nil {
		object, _ := s.cluster.Kubectl(s.t.Context(), "--namespace=team", "get", "smolvm", "web", "--output=yaml")
		log, _ := s.cluster.Kubectl(s.t.Context(), "--namespace="+smolNamespace, "logs", "deployment/smolvm-controller", "--tail=30")
		runtime, _ := s.cluster.Kubectl(s.t.Context(), "--namespace="+smolNamespace, "logs", "daemonset/smolvm-runtime", "--tail=30")
		s.t.Fatalf("%s: %v: %s\n%s\n%s\n%s", what, err, out, object, log, runtime)
	}
	s.say(what)
}

func (s *smolVMs) status(field string) string {
	s.t.Helper()
	return s.kubectl("--namespace=team", "get", "smolvm", "web", "--output=jsonpath={.status."+field+"}")
}

// answers asks the machine at the port of its node.
func (s *smolVMs) answers() bool {
	for _, node := range s.cluster.Nodes() {
		if node.Name() == s.status("nodeName") {
			return s.answersAt(node, 18081)
		}
	}
	return false
}

// answersAt asks what listens at a port of a node.
func (s *smolVMs) answersAt(node *realcluster.Node, port int) bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	return s.answersWithin(ctx, node, port)
}

func (s *smolVMs) answersWithin(ctx context.Context, node *realcluster.Node, port int) bool {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: s.cluster.Dial}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/", node.Address(), port), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func (s *smolVMs) mustAnswer(when string) {
	s.t.Helper()
	poll.Eventually(s.t, patience, 200*time.Millisecond, func() error {
		if !s.answers() {
			return fmt.Errorf("%s the port does not answer", when)
		}
		return nil
	})
	s.say("the port answers " + when)
}

const smolVM = `
apiVersion: vm.smolvm.dev/v1alpha1
kind: SmolVM
metadata: {name: web, namespace: team}
spec:
  running: true
  image: web:1
  resources: {cpus: 1, memoryMiB: 256}
  storage: {storageGiB: 1, overlayGiB: 1}
  network: {enabled: true, ports: [{hostPort: 18081, guestPort: 80}]}
`

// TestSmolVM: from the chart to a port that answers, the loss of the runtime's pods, a stop, growth, and deletion.
func TestSmolVM(t *testing.T) {
	c := theCluster(t)
	s := &smolVMs{t: t, cluster: c, begin: time.Now(), registry: serveImages(t, c)}
	s.install()
	t.Cleanup(func() { s.remove() })
	poll.Eventually(t, patience, time.Second, func() error {
		if got := strings.Fields(s.kubectl("get", "smolvmnodes", "--output=name")); len(got) != len(c.Nodes()) {
			return fmt.Errorf("there are the SmolVMNodes %v", got)
		}
		return nil
	})
	s.say("each node has a SmolVMNode")
	s.kubectl("create", "namespace", "team")
	if out, err := c.KubectlInput(t.Context(), smolVM, "apply", "--filename=-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.await("Ready", "condition=Ready")
	s.await("GuestReady", "condition=GuestReady")
	if phase := s.status("phase"); phase != "Running" {
		t.Errorf("the phase is %s", phase)
	}
	s.mustAnswer("after the start")
	s.lookInto()

	s.kubectl("--namespace="+smolNamespace, "delete", "pods", "--all", "--timeout=120s")
	s.mustAnswer("after all pods of SmolVM were deleted")
	s.kubectl("--namespace="+smolNamespace, "rollout", "status", "daemonset/smolvm-runtime", "--timeout=120s")
	s.kubectl("--namespace="+smolNamespace, "rollout", "status", "deployment/smolvm-controller", "--timeout=120s")

	s.kubectl("--namespace=team", "patch", "smolvm", "web", "--type=merge", `--patch={"spec":{"running":false}}`)
	s.await("Stopped", "jsonpath={.status.phase}=Stopped")
	s.kubectl("--namespace=team", "patch", "smolvm", "web", "--type=merge", `--patch={"spec":{"running":true,"storage":{"storageGiB":2}}}`)
	s.await("Running again, with more storage", "jsonpath={.status.phase}=Running")
	s.mustAnswer("after the second start")

	s.kubectl("--namespace=team", "delete", "smolvm", "web", "--timeout=120s")
	s.say("deleted")
	for _, node := range c.Nodes() {
		if out, err := node.Exec(t.Context(), "sh", "-c", "ls -d /var/lib/smolvm/machines/*/ 2>/dev/null || true"); err != nil || strings.TrimSpace(out) != "" {
			t.Errorf("%s has %q: %v", node.Name(), out, err)
		}
	}
}

// lookInto looks into the guest through the pod of its runtime, as an administrator does.
func (s *smolVMs) lookInto() {
	s.t.Helper()
	if out := s.kvmOperator("hello", "exec", "web", "--stdin", "--", "/bin/sh", "-c", "cat; echo; uname -s; echo seen >/dev/console"); out != "hello\nLinux\n" {
		s.t.Errorf("the command printed %q", out)
	}
	if out := s.kvmOperator("", "logs", "web", "--tail=5"); !strings.Contains(out, "seen\n") {
		s.t.Errorf("the console has %q", out)
	}
	s.say("a command ran in the guest, and its console was read")
}

// kvmOperator runs kvm-operator smolvm in the network of the cluster.
func (s *smolVMs) kvmOperator(in, what string, arguments ...string) string {
	s.t.Helper()
	binary := filepath.Join(s.t.TempDir(), "kvm-operator")
	if out, err := exec.CommandContext(s.t.Context(), "go", "build", "-o", binary, "../../..").CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	command := exec.CommandContext(s.t.Context(), binary, append([]string{"smolvm", what, "--namespace=team", "--kubeconfig=" + s.cluster.Kubeconfig()}, arguments...)...)
	var out, errs strings.Builder
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(in), &out, &errs
	if err := s.cluster.Run(command); err != nil {
		s.t.Fatalf("kvm-operator smolvm %s: %v: %s%s", what, err, &out, &errs)
	}
	return out.String()
}

// remove removes what was installed, and machines, which outlive everything else.
func (s *smolVMs) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	_, _ = s.cluster.Kubectl(ctx, "delete", "namespace", "team", "--ignore-not-found", "--timeout=60s")
	command := exec.CommandContext(ctx, filepath.Join(tools, "helm"), "uninstall", smolRelease, "--namespace="+smolNamespace, "--kubeconfig="+s.cluster.Kubeconfig(), "--wait", "--timeout=150s")
	if err := s.cluster.Run(command); err != nil {
		s.t.Errorf("removing the chart: %v", err)
	}
}
