// Package realkubevirt installs KubeVirt on the nodes of a real cluster, by KubeVirt's own operator: virt-api,
// virt-controller and virt-handler run in pods, and virtual machines run guests by software emulation. The images are
// those of integration/images/kubevirt.
package realkubevirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

const (
	// Namespace is where KubeVirt runs.
	Namespace = "kubevirt"
	manifest  = "kubevirt-operator.yaml"
	glance    = time.Second
)

// configuration is the KubeVirt object. There is one node, so one of each program is enough. A node of this machine has
// /dev/kvm even where no guest can use it; where virt-handler's labeler sees no device of this name, it describes
// QEMU's emulation.
const configuration = `
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt}
spec:
  imagePullPolicy: Never
  infra: {replicas: 1}
  configuration:
    developerConfiguration: {useEmulation: true}
  customizeComponents:
    patches:
    - resourceType: DaemonSet
      resourceName: virt-handler
      type: strategic
      patch: '{"spec": {"template": {"spec": {"initContainers": [{"name": "virt-launcher", "env": [
        {"name": "HYPERVISOR_DEVICE", "value": "none"}, {"name": "PREFERRED_VIRTTYPE", "value": "qemu"}]}]}}}}'
`

// Images returns the archives of images that nodes need, in a directory of tools.
func Images(tools string) []string {
	return []string{filepath.Join(tools, "kubevirt-node.tar"), filepath.Join(tools, "kubevirt-plane.tar")}
}

// Labels are what a node needs for virt-operator to run on it.
func Labels() map[string]string {
	return map[string]string{"node-role.kubernetes.io/control-plane": ""}
}

// Install installs KubeVirt, and returns when its operator says that it is available and virtual machines can be
// scheduled to every node. The context limits how long it takes; on an idle machine it is a minute and a half.
func Install(ctx context.Context, cluster *realcluster.Cluster, tools string, say func(format string, args ...any)) error {
	text, err := os.ReadFile(filepath.Join(tools, manifest))
	if err != nil {
		return fmt.Errorf("reading KubeVirt's manifests: %w (run `make kubevirt-images`)", err)
	}
	if _, err := cluster.KubectlInput(ctx, string(text), "apply", "--server-side", "--filename=-"); err != nil {
		return fmt.Errorf("installing KubeVirt's operator: %w", err)
	}
	if _, err := cluster.KubectlInput(ctx, configuration, "apply", "--server-side", "--filename=-"); err != nil {
		return fmt.Errorf("configuring KubeVirt: %w", err)
	}
	began, last := time.Now(), ""
	err = poll.Until(ctx, glance, nil, func(ctx context.Context) error {
		missing, err := missing(ctx, cluster)
		if err == nil && missing != last {
			last = missing
			say("KubeVirt: %s after %.0fs", missing, time.Since(began).Seconds())
		}
		if err == nil && missing != available {
			err = fmt.Errorf("KubeVirt is not available: %s", missing)
		}
		return err
	})
	if err != nil {
		pods, _ := cluster.Kubectl(context.WithoutCancel(ctx), "--namespace="+Namespace, "get", "pods", "--output=wide")
		return fmt.Errorf("waiting for KubeVirt: %w\n%s", err, pods)
	}
	return nil
}

const available = "available"

// missing says in a word or two how far the installation is.
func missing(ctx context.Context, cluster *realcluster.Cluster) (string, error) {
	state, err := cluster.Kubectl(ctx, "--namespace="+Namespace, "get", "kubevirt", "kubevirt",
		`--output=jsonpath={.status.phase}/{.status.conditions[?(@.type=="Available")].status}`)
	if err != nil {
		return "", err
	}
	if state != "Deployed/True" {
		return fmt.Sprintf("phase %q", strings.Split(state, "/")[0]), nil
	}
	nodes, err := cluster.Kubectl(ctx, "get", "nodes", "--selector=kubevirt.io/schedulable=true", "--output=name")
	if err != nil {
		return "", err
	}
	if ready, all := len(strings.Fields(nodes)), len(cluster.Nodes()); ready < all {
		return fmt.Sprintf("%d of %d nodes", ready, all), nil
	}
	return available, nil
}
