package realcluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/realcluster"
	"github.com/kvm-operator/kvm-operator/integration/vm"
	"github.com/kvm-operator/kvm-operator/pkg/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// A pod as the operator makes it, with the tiny guest and without disks.
const nodePod = `
apiVersion: v1
kind: ConfigMap
metadata: {name: boot-data}
data: {user_data: "%[1]s"}
---
apiVersion: v1
kind: Pod
metadata: {name: worker-abc}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: k8s-kvm
    image: docker.io/kvm-operator/kvm-operator-runner:%[2]s
    args: [runner]
    env:
    - {name: HOSTNAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: CORES, value: "1"}
    - {name: MEMORY, value: 256M}
    - {name: ACCELERATION, value: tcg}
    - {name: ALLOW_EMULATION, value: "true"}
    - {name: IMAGE_DIRECTORIES, value: %[5]s}
    - {name: CLOUD_CONFIG_PATH, value: /cloudconfig/user_data}
    - {name: GUEST_IMAGE, value: '%[3]s'}
    readinessProbe:
      exec: {command: [%[4]s, runner, status]}
      periodSeconds: 2
      timeoutSeconds: 5
    securityContext: {privileged: true, capabilities: {add: [NET_ADMIN]}}
    resources: {limits: {cpu: "1", memory: 768Mi}}
    volumeMounts:
    - {name: boot-data, mountPath: /cloudconfig, readOnly: true}
    - {name: images, mountPath: /usr/code/images}
    - {name: disks, mountPath: /usr/code/rootfs}
    - {name: guest, mountPath: %[5]s, readOnly: true}
  volumes:
  - {name: boot-data, configMap: {name: boot-data}}
  - {name: images, hostPath: {path: /var/lib/flatcar-kvm-images, type: DirectoryOrCreate}}
  - {name: disks, emptyDir: {}}
  - {name: guest, hostPath: {path: %[5]s, type: Directory}}
`

func TestNodePodRunsItsMachine(t *testing.T) {
	c := theCluster(t)
	image, guest := vm.Tiny(t), t.TempDir()
	description, err := json.Marshal(osimage.Image{
		Name: "tiny", Kernel: osimage.File{URL: copied(t, image.Kernel, guest)}, Initrd: osimage.File{URL: copied(t, image.Initrd, guest)},
		KernelArguments: image.Arguments,
	})
	if err != nil {
		t.Fatal(err)
	}
	bootData := vm.Pack(t, `{"ignition":{"version":"3.3.0"}}`)
	apply(t, c, "machine", fmt.Sprintf(nodePod, bootData, project.Version(), description, nodepod.Binary, guest))
	if _, err := c.Kubectl(t.Context(), "--namespace=machine", "wait", "--for=condition=Ready", "pod/worker-abc", "--timeout=90s"); err != nil {
		t.Fatalf("%v\n%s", err, explained(c, "machine", "worker-abc"))
	}
	address := kubectl(t, c, "--namespace=machine", "get", "pod", "worker-abc", "--output=jsonpath={.status.podIP}")
	for port, path := range map[string]string{":8080": "/", ":10248": "/healthz"} {
		answer, err := ask(t.Context(), c.Node(0).Dial, address+port, path)
		if err != nil || !strings.Contains(answer, "200 OK") {
			t.Errorf("the guest answers %q (%v) on port %s", answer, err, port)
		}
	}
	if _, err := c.Node(0).Exec(t.Context(), "ping", "-c", "1", "-W", "5", address); err != nil {
		t.Error(err)
	}
	status := kubectl(t, c, "--namespace=machine", "exec", "worker-abc", "--", nodepod.Binary, "runner", "status")
	if !strings.Contains(status, "Running") {
		t.Errorf("the runner says %q", status)
	}
	kubectl(t, c, "--namespace=machine", "delete", "pod", "worker-abc", "--timeout=60s")
}

// copied copies a file to a directory and returns its URL. What is in .tools are links to where no pod sees.
func copied(t *testing.T, path, directory string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(directory, filepath.Base(path))
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// explained is what can be known of a pod that has not become Ready.
func explained(c *realcluster.Cluster, namespace, pod string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all strings.Builder
	for _, args := range [][]string{{"describe", "pod", pod}, {"logs", pod}} {
		output, err := c.Kubectl(ctx, append([]string{"--namespace=" + namespace}, args...)...)
		fmt.Fprintln(&all, output)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}
