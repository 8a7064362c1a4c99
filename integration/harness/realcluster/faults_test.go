package realcluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

// farPod is a pod for the second of two nodes.
const farPod = `
apiVersion: v1
kind: Pod
metadata: {name: far}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 1
  containers:
  - name: far
    image: ` + busyboxImage + `
    command: [sh, -c, "mkdir /www; echo here >/www/index.html; exec httpd -f -p 8080 -h /www"]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`

// breakDown injects faults into the second node.
func breakDown(t *testing.T, c *realcluster.Cluster) {
	apply(t, c, "far", farPod)
	kubectl(t, c, "--namespace=far", "wait", "--for=condition=Ready", "pod/far", "--timeout=60s")
	served := func() error {
		address, err := c.Kubectl(t.Context(), "--namespace=far", "get", "pod", "far", "--output=jsonpath={.status.podIP}:8080")
		if err != nil {
			return err
		}
		answer, err := ask(t.Context(), c.Node(0).Dial, address, "/")
		if err == nil && !strings.Contains(answer, "here") {
			err = fmt.Errorf("the pod answers %q", answer)
		}
		return err
	}
	await(t, 10*time.Second, served)

	node := c.Node(1)
	if err := node.StopComponent(realcluster.Kubelet); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "--namespace=far", "exec", "far", "--", "true"); err == nil {
		t.Error("a kubelet that was stopped still answers")
	}
	if err := served(); err != nil {
		t.Errorf("the pod ended with its kubelet: %v", err)
	}
	if err := node.StartComponent(t.Context(), realcluster.Kubelet); err != nil {
		t.Fatal(err)
	}
	await(t, 20*time.Second, func() error {
		_, err := c.Kubectl(t.Context(), "--namespace=far", "exec", "far", "--", "true")
		return err
	})

	if _, err := node.Exec(t.Context(), "sh", "-c", "echo old >/var/lib/kvm-operator-test"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // killing a node that is down is not an error
		if err := node.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := served(); err == nil {
		t.Error("the pod outlived its node")
	}
	if err := node.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, 30*time.Second, served)
	if disk, err := node.Exec(t.Context(), "cat", "/var/lib/kvm-operator-test"); disk != "old\n" {
		t.Errorf("after the power cut the node's disk has %q (%v)", disk, err)
	}
}

// toolsWithKubelet returns the tools with a shell script as kubelet.
func toolsWithKubelet(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(tools)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		target, err := filepath.Abs(filepath.Join(tools, entry.Name()))
		if err == nil && entry.Name() != "kubelet" {
			err = os.Symlink(target, filepath.Join(dir, entry.Name()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kubelet"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFailedStartSaysWhyAndKeepsOnlyItsLogs(t *testing.T) {
	dir := temporaryDirectory(t)
	_, err := realcluster.Start(t.Context(), realcluster.Options{Tools: toolsWithKubelet(t, "echo no such luck; exit 3")})
	if err == nil {
		t.Fatal("Start succeeded without a kubelet")
	}
	for _, want := range []string{"kubelet of node-1", "has ended (exit status 3)", "node-1/kubelet.log", "no such luck"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	for pattern, want := range map[string]int{"*/node-1/kubelet.log": 1, "*/control-plane/etcd": 0, "*/node-1/containerd": 0, "*/node-1/own": 0} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != want {
			t.Errorf("the failed start left %v, want %d files %s", found, want, pattern)
		}
	}
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	dir := temporaryDirectory(t)
	mark, err := process.Mark()
	if err != nil {
		t.Fatal(err)
	}
	// Leftovers of an earlier process with the same id are also removed.
	earlier := filepath.Join(dir, "realcluster-"+mark[:strings.LastIndex(mark, "-")]+"-1-1-x")
	if err := os.MkdirAll(filepath.Join(earlier, "control-plane"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	_, err = realcluster.Start(ctx, realcluster.Options{
		Output: writerFunc(func(string) { interrupt() }), // at the first component that is ready
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted start returned %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the interrupted start left %v (%v)", left, err)
	}
	if output, err := exec.Command("pgrep", "-f", dir).Output(); err == nil {
		t.Errorf("the interrupted start left the processes %s", output)
	}
}

// temporaryDirectory is the parent of clusters' default directories, until the end of the test.
func temporaryDirectory(t *testing.T) string {
	t.Helper()
	busyboxArchive(t) // is elsewhere
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

type writerFunc func(string)

func (f writerFunc) Write(line []byte) (int, error) { f(string(line)); return len(line), nil }
