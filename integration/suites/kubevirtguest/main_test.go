// Package kubevirtguest_test runs Machines whose guests boot: on a real cluster with KubeVirt, installed by its own
// operator, and with the operator of Machines, installed by its chart. make e2e-machines runs it.
package kubevirtguest_test

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

	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/realkubevirt"
)

const (
	root  = "../../.."
	tools = root + "/.tools"
	// startLimit is how long the cluster, KubeVirt and the operator may take to start on a busy machine.
	startLimit = 12 * time.Minute
	// namespace is that of the Machines, and operatorNamespace that of their operator.
	namespace, operatorNamespace = "team-a", "kubevirt-operator-system"
	// diskImage is the container image with the disk image of the guest.
	diskImage = "disks.test/cloud:1"
)

// cluster is the cluster of all tests.
var cluster *realcluster.Cluster

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	work, err := os.MkdirTemp("", "kubevirtguest")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	disk, err := packDisk(ctx, work)
	if err != nil {
		return 1, err
	}
	cluster, err = realcluster.Start(ctx, realcluster.Options{
		Tools: tools, Output: os.Stderr, Nodes: []realcluster.NodeOptions{{Labels: realkubevirt.Labels()}},
		Images: append(realkubevirt.Images(tools), filepath.Join(tools, "operator-image.tar"), disk),
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := os.Remove(disk); err != nil {
		return 1, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if err := realkubevirt.Install(ctx, cluster, tools, say); err != nil {
		return 1, err
	}
	if err := installOperator(ctx); err != nil {
		return 1, err
	}
	if _, err := cluster.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// packDisk writes an archive of a container image with the cloud image, as docs/machines.md says that it has to be. The
// cloud image is mostly empty, and its other form is not.
func packDisk(ctx context.Context, directory string) (archive string, err error) {
	source, err := filepath.EvalSymlinks(filepath.Join(tools, "guest", "cloud.img"))
	if err != nil {
		return "", fmt.Errorf("finding the cloud image: %w (run `make kubevirt-images`)", err)
	}
	disk := filepath.Join(directory, "disk.qcow2")
	command := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-o", "compression_type=zstd", source, disk)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("converting the cloud image: %w\n%s", err, output)
	}
	archive = filepath.Join(directory, "disk.tar")
	err = realcluster.WriteImage(archive, realcluster.Image{Name: diskImage, Files: map[string]string{"/disk/disk.qcow2": disk}})
	return archive, errors.Join(err, os.Remove(disk))
}

// installOperator installs the operator of Machines as its chart's README says.
func installOperator(ctx context.Context) error {
	command := exec.CommandContext(ctx, filepath.Join(tools, "helm"), "install", "kubevirt-operator", filepath.Join(root, "helm", "kubevirt-operator"),
		"--namespace="+operatorNamespace, "--create-namespace", "--kubeconfig="+cluster.Kubeconfig(), "--wait", "--timeout=3m")
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := cluster.Run(command); err != nil {
		pods, _ := cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "describe", "pods")
		return fmt.Errorf("installing the operator of Machines: %w\n%s\n%s", err, output.String(), pods)
	}
	return nil
}
