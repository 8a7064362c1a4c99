package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/managementcluster/process"
)

// operator is the running operator.
type operator struct {
	*process.Process
	commandLine string // relative to the root of the checkout
}

// operatorArguments are what the operator needs to run outside of a cluster.
func operatorArguments(kubeconfig, address string) []string {
	return []string{
		"daemon",
		"--service.kubernetes.kubeconfigpath=" + kubeconfig,
		"--server.listen.address=http://" + address,
		// No machine boots, so no workload cluster answers.
		"--service.workload.connect=false",
	}
}

// buildOperator builds the operator of the checkout and returns the path of its executable.
func buildOperator(ctx context.Context, root string) (string, error) {
	binary := filepath.Join(root, "bin", "kvm-operator")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = root
	// On an interrupt go removes its temporary files; killed, it would leave them behind.
	build.Cancel = func() error { return build.Process.Signal(os.Interrupt) }
	build.WaitDelay = 10 * time.Second
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the operator: %w\n%s", err, output)
	}
	return binary, nil
}

// startOperator starts the operator with a kubeconfig and a loopback port of its own.
func startOperator(s state, cluster *managementcluster.Cluster, binary string) (*operator, error) {
	kubeconfig := s.path("operator.kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, "kvm-operator", "system:masters"); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, fmt.Errorf("choosing a port for the operator: %w", err)
	}
	arguments := operatorArguments(kubeconfig, address)
	p, err := process.Start(process.Command{Name: "operator", Path: binary, Args: arguments, Dir: s.dir})
	if err != nil {
		return nil, err
	}
	commandLine := strings.ReplaceAll(strings.Join(append([]string{binary}, arguments...), " "), s.root+"/", "")
	return &operator{Process: p, commandLine: commandLine}, nil
}

func (o *operator) stop() error { return o.Stop(10 * time.Second) }

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
