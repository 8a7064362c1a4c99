package realcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/namespace"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// Node is a node of the cluster. Its methods may be called from several goroutines.
type Node struct {
	cluster *Cluster
	number  int // from 1
	labels  map[string]string
	weight  int

	mu         sync.Mutex // guards the fields below
	namespaces *namespace.Namespaces
	running    map[NodeComponent]*process.Process
}

// Name is the name of the Node object.
func (n *Node) Name() string { return nodeName(n.number) }

// Address is the node's InternalIP.
func (n *Node) Address() string { return nodeAddress(n.number).String() }

// Dial connects from within the node's network, which reaches pods and Services. Names are those of the cluster.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	namespaces, err := n.inside()
	if err != nil {
		return nil, err
	}
	resolved, err := n.cluster.resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	return namespaces.Dial(ctx, network, resolved)
}

// Exec runs a program on the node, with its network, mounts and processes, and returns its standard output. When it
// fails, the error contains its standard error.
func (n *Node) Exec(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	var output, complaint bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaint
	if err := n.Run(command); err != nil {
		return output.String(), fmt.Errorf("%s on %s: %w\n%s", strings.Join(command.Args, " "), n.Name(), err, &complaint)
	}
	return output.String(), nil
}

// Run runs a command on the node until it ends. It reaches the API server (Cluster.Kubeconfig), pods and Services, and
// Services also by name.
func (n *Node) Run(command *exec.Cmd) error {
	namespaces, err := n.inside()
	if err != nil {
		return err
	}
	return namespaces.Run(command)
}

// Start starts a process on the node that runs until it is stopped, ends by itself or the node ends. Start sets
// Command.Enter and Command.Guarded.
func (n *Node) Start(command process.Command) (*process.Process, error) {
	namespaces, err := n.inside()
	if err != nil {
		return nil, err
	}
	command.Enter, command.Guarded = namespaces.Enter, true
	return process.Start(command)
}

// PID returns the id of the node's first process, as this machine sees it, for `nsenter --target PID --all`. It is 0
// while the node is down.
func (n *Node) PID() int {
	namespaces, err := n.inside()
	if err != nil {
		return 0
	}
	return namespaces.PID()
}

func (n *Node) inside() (*namespace.Namespaces, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.namespaces == nil {
		return nil, fmt.Errorf("%s is down", n.Name())
	}
	return n.namespaces, nil
}

// Kill ends the node with everything that runs there, as a power failure does. Killing a node that is down is not an
// error.
func (n *Node) Kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.namespaces == nil {
		return nil
	}
	errs := []error{n.namespaces.Stop()}
	for name, p := range n.running {
		delete(n.running, name)
		errs = append(errs, p.Stop(0))
	}
	n.namespaces = nil
	errs = append(errs, n.cluster.site.Do(func() error { return unplug(n.number) }))
	return errors.Join(errs...)
}

// Boot starts a node again after Kill, with its old disks, and returns when it is Ready.
func (n *Node) Boot(ctx context.Context) error {
	err := n.prepare(ctx)
	if err == nil {
		err = n.join(ctx)
	}
	return err
}

// prepare creates the node and starts its containerd, which needs no API server.
func (n *Node) prepare(ctx context.Context) error {
	if err := n.powerOn(); err != nil {
		return fmt.Errorf("making %s: %w", n.Name(), err)
	}
	if err := n.StartComponent(ctx, Containerd); err != nil {
		return err
	}
	return n.importImages(ctx)
}

func (n *Node) powerOn() error {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("the cluster has been stopped")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.namespaces != nil {
		return errors.New("it is not down")
	}
	if err := errors.Join(os.MkdirAll(n.dir(), 0o755), makeCgroup(n.cgroup(), n.weight)); err != nil {
		return err
	}
	namespaces, err := namespace.Start(process.Command{Name: "node", Path: c.pause(), Dir: n.dir()},
		namespace.Network|namespace.Mounts|namespace.Processes|namespace.IPC|namespace.Hostname)
	if err != nil {
		return err
	}
	n.namespaces = namespaces
	if err := n.mount(); err != nil {
		return err
	}
	if err := c.site.Do(func() error { return plugIn(n.number, namespaces.PID()) }); err != nil {
		return fmt.Errorf("plugging in its network: %w", err)
	}
	return namespaces.Do(func() error { return setUpNode(n.number, len(c.nodes)) })
}

func (n *Node) dir() string             { return n.cluster.path(n.Name()) }
func (n *Node) path(name string) string { return filepath.Join(n.dir(), name) }
func (n *Node) cgroup() string          { return n.cluster.name + "/" + n.Name() }

// Cgroup is the node's cgroup, in every hierarchy. What is below it goes with the node.
func (n *Node) Cgroup() string { return "/" + n.cgroup() }
