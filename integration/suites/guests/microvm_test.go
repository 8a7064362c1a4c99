package guests_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// runtimePod is a pod like that of the runtime of SmolVMs, with only the server in it.
const runtimePod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: microvm, annotations: {try: %[1]q}}
spec:
  nodeName: %[2]s
  hostPID: true
  hostNetwork: true
  terminationGracePeriodSeconds: 5
  containers:
  - name: runtime
    image: docker.io/kvm-operator/kvm-operator-smolvm-runtime:%[3]s
    command: [smolvm, serve, start, --acceleration=tcg, --allow-emulation, --publish-address=0.0.0.0, --registry-mirror=docker.io=%[4]s,
      --registry-insecure=%[4]s, --cgroup-root=/host/cgroup, --cgroup-parent=%[5]s/smolvm]
    securityContext: {privileged: true}
    readinessProbe: {exec: {command: [smolvm, machine, ls]}, periodSeconds: 1}
    volumeMounts:
    - {name: state, mountPath: /var/lib/smolvm}
    - {name: run, mountPath: /var/run/smolvm}
    - {name: cgroup, mountPath: /host/cgroup}
  volumes:
  - {name: state, hostPath: {path: /var/lib/smolvm, type: DirectoryOrCreate}}
  - {name: run, hostPath: {path: /var/run/smolvm, type: DirectoryOrCreate}}
  - {name: cgroup, hostPath: {path: /sys/fs/cgroup}}
`

// microVMs is the runtime of a node.
type microVMs struct {
	t        *testing.T
	cluster  *realcluster.Cluster
	node     *realcluster.Node
	registry string
	pod      string
}

func (m *microVMs) kubectl(arguments ...string) string {
	m.t.Helper()
	out, err := m.cluster.Kubectl(m.t.Context(), append([]string{"--namespace=microvm"}, arguments...)...)
	if err != nil {
		m.t.Fatalf("kubectl %s: %v", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(out)
}

// start starts a runtime and waits until it serves.
func (m *microVMs) start(pod string) {
	m.t.Helper()
	m.pod = pod
	manifest := fmt.Sprintf(runtimePod, pod, m.node.Name(), project.Version(), m.registry, m.node.Cgroup())
	if out, err := m.cluster.KubectlInput(m.t.Context(), manifest, "apply", "--filename=-"); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	if out, err := m.cluster.Kubectl(m.t.Context(), "--namespace=microvm", "wait", "--for=condition=Ready", "pod", pod, "--timeout=90s"); err != nil {
		m.t.Fatalf("%v: %s\n%s", err, out, m.cluster.Explain("microvm", pod))
	}
}

// smolvm runs the command in the pod.
func (m *microVMs) smolvm(arguments ...string) string {
	m.t.Helper()
	return m.kubectl(append([]string{"exec", m.pod, "--", "smolvm"}, arguments...)...)
}

// mustServe waits until commands reach the pod: a kubelet that has just started does not know its pods yet.
func (m *microVMs) mustServe() {
	m.t.Helper()
	poll.Eventually(m.t, patience, 200*time.Millisecond, func() error {
		if out, err := m.cluster.Kubectl(m.t.Context(), "--namespace=microvm", "exec", m.pod, "--", "smolvm", "machine", "ls"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// fetch returns what the machine answers at the node's port.
func (m *microVMs) fetch() (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return m.cluster.Dial(ctx, network, address)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(m.node.Address(), "18080")+"/", nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func (m *microVMs) mustAnswer(when string) {
	m.t.Helper()
	poll.Eventually(m.t, patience, 200*time.Millisecond, func() error {
		text, err := m.fetch()
		if err == nil && !strings.Contains(text, "hello from a microVM") {
			err = fmt.Errorf("%s the port answers %q", when, text)
		}
		return err
	})
}

// qemu returns the number of QEMU's process as the node sees it.
func (m *microVMs) qemu() string {
	m.t.Helper()
	status := m.smolvm("machine", "status", "web")
	_, rest, ok := strings.Cut(status, `"pid": `)
	pid, _, _ := strings.Cut(rest, ",")
	if !ok || !strings.Contains(status, `"state": "running"`) {
		m.t.Fatalf("the machine does not run: %s", status)
	}
	return pid
}

// TestMachineOutlivesItsPod: a machine of the runtime of SmolVMs keeps running while its pod is deleted and replaced,
// and while kubelet and containerd are restarted. The next runtime finds it.
func TestMachineOutlivesItsPod(t *testing.T) {
	isLong(t) // TestSmolVM deletes the pod, too
	c := theCluster(t)
	m := &microVMs{t: t, cluster: c, node: c.Node(0), registry: serveImages(t, c)}
	if out, err := c.Kubectl(t.Context(), "create", "namespace", "microvm"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.start("first")
	t.Cleanup(func() { // machines outlive everything else
		_, _ = c.Kubectl(context.Background(), "--namespace=microvm", "exec", m.pod, "--", "smolvm", "machine", "delete", "web")
		_, _ = c.Kubectl(context.Background(), "delete", "namespace", "microvm", "--timeout=60s")
	})
	m.smolvm("machine", "create", "web", "--image=web:1", "--port=18080:80", "--storage=1", "--overlay=1", "--memory=256")
	begin := time.Now()
	m.smolvm("machine", "start", "web")
	m.mustAnswer("after its start")
	t.Logf("started in %s", time.Since(begin).Round(time.Second))
	m.smolvm("machine", "exec", "web", "--", "sh", "-c", "echo kept >/run/kept") // in the guest's memory
	pid := m.qemu()

	m.kubectl("delete", "pod", "first", "--timeout=60s")
	m.mustAnswer("without its pod")
	m.start("second")
	if again := m.qemu(); again != pid {
		t.Errorf("QEMU is process %s and was %s", again, pid)
	}
	if text := m.smolvm("machine", "exec", "web", "--", "cat", "/run/kept"); text != "kept" {
		t.Errorf("the guest's memory holds %q", text)
	}

	for _, component := range []realcluster.NodeComponent{realcluster.Kubelet, realcluster.Containerd} {
		if err := m.node.StopComponent(component); err != nil {
			t.Fatal(err)
		}
	}
	m.mustAnswer("without kubelet and containerd")
	for _, component := range []realcluster.NodeComponent{realcluster.Containerd, realcluster.Kubelet} {
		if err := m.node.StartComponent(t.Context(), component); err != nil {
			t.Fatal(err)
		}
	}
	m.mustServe()
	if again := m.qemu(); again != pid {
		t.Errorf("QEMU is process %s and was %s", again, pid)
	}
	m.smolvm("machine", "stop", "web")
	if status := m.smolvm("machine", "status", "web"); !strings.Contains(status, `"state": "stopped"`) {
		t.Errorf("the machine is not stopped: %s", status)
	}
}

// serveImages serves an image in the cluster's network.
func serveImages(t *testing.T, c *realcluster.Cluster) (address string) {
	t.Helper()
	web, err := ocifixture.Web()
	if err != nil {
		t.Fatal(err)
	}
	registry, err := ocifixture.Serve(map[string]v1.Image{"library/web:1": web}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	listener, err := c.Listen(t.Context(), "tcp", c.Address()+":0")
	if err != nil {
		t.Fatal(err)
	}
	registry.ServeAlso(listener)
	return listener.Addr().String()
}
