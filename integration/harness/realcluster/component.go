package realcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// NodeComponent names one process of a node. It is also the name of its executable.
type NodeComponent string

// The components of a node.
const (
	Containerd NodeComponent = "containerd"
	Kubelet    NodeComponent = "kubelet"
	KubeProxy  NodeComponent = "kube-proxy"
)

// socket is where containerd listens, in each node's own /run.
const socket = "/run/containerd/containerd.sock"

// StopComponent kills one component, as a crash would. It does nothing if the component does not run. Containers
// outlive it.
func (n *Node) StopComponent(name NodeComponent) error {
	n.mu.Lock()
	p := n.running[name]
	delete(n.running, name)
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Stop(0)
}

// StartComponent starts one component and returns when it answers. A kubelet that answers may not be Ready yet.
func (n *Node) StartComponent(ctx context.Context, name NodeComponent) error {
	began := time.Now()
	p, err := n.spawn(name)
	if err != nil {
		return fmt.Errorf("starting %s of %s: %w", name, n.Name(), err)
	}
	err = await(ctx, p, fmt.Sprintf("%s of %s", name, n.Name()), func(ctx context.Context) error { return n.answers(ctx, name) })
	if err != nil {
		return errors.Join(err, n.StopComponent(name))
	}
	n.cluster.say("%s: %s is ready after %.1fs", n.Name(), name, time.Since(began).Seconds())
	go n.watch(name, p)
	return nil
}

func (n *Node) spawn(name NodeComponent) (*process.Process, error) {
	path, args, err := n.commandLine(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.namespaces == nil {
		return nil, errors.New("the node is down")
	}
	if n.running[name] != nil {
		return nil, errors.New("it runs already")
	}
	p, err := process.Start(process.Command{Name: string(name), Path: path, Args: args, Dir: n.dir(), Enter: n.namespaces.Enter, Guarded: true})
	if err != nil {
		return nil, err
	}
	n.running[name] = p
	return p, nil
}

// commandLine writes the configuration of a component and returns its command line.
func (n *Node) commandLine(name NodeComponent) (path string, args []string, err error) {
	path = filepath.Join(n.cluster.options.Tools, string(name))
	switch name {
	case Containerd:
		if path, err = exec.LookPath(string(name)); err != nil {
			return "", nil, err
		}
		return path, []string{"--config=" + n.path("containerd.toml")}, n.configureContainerd()
	case Kubelet:
		return path, []string{
			"--config=" + n.path("kubelet.yaml"), "--kubeconfig=" + n.path("kubelet.kubeconfig"), "--root-dir=/var/lib/kubelet",
			"--hostname-override=" + n.Name(), "--node-ip=" + n.Address(), "--v=2",
		}, n.configureKubelet()
	default:
		return path, []string{"--config=" + n.path("kube-proxy.yaml")}, n.configureProxy()
	}
}

// answers returns why a component cannot serve requests yet.
func (n *Node) answers(ctx context.Context, name NodeComponent) error {
	switch name {
	case Containerd:
		_, err := n.Exec(ctx, "ctr", "version")
		return err
	case Kubelet:
		connection, err := n.Dial(ctx, "tcp", net.JoinHostPort(n.Address(), "10250"))
		if err != nil {
			return err
		}
		return connection.Close()
	default:
		return get(ctx, n.Dial, "http://127.0.0.1:10256/healthz")
	}
}

// watch reports a component that ends unexpectedly.
func (n *Node) watch(name NodeComponent, p *process.Process) {
	<-p.Done()
	n.mu.Lock()
	unexpected := n.running[name] == p
	if unexpected {
		delete(n.running, name)
	}
	n.mu.Unlock()
	if unexpected {
		n.cluster.say("%s: %v", n.Name(), p.Failure())
	}
}
