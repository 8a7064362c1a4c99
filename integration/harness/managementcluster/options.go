package managementcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/namespace"
	"github.com/kvm-operator/kvm-operator/integration/harness/tools"
)

// Options define a management cluster. The zero value is an API server with its etcd.
type Options struct {
	// Dir is the state directory. A cluster that is started in the directory of a former one continues its state, in
	// whatever way the former one ended. Default: a temporary directory that Stop removes.
	Dir string
	// Tools is the directory with the components' executables. Default: .tools beside the nearest go.mod in the working
	// directory or above it, where `make tools` puts them.
	Tools string

	// ControllerManager runs kube-controller-manager: it creates the pods of Deployments, ends namespaces and collects
	// garbage.
	ControllerManager bool
	// Scheduler runs kube-scheduler.
	Scheduler bool
	// Kwok runs kwok, which plays the kubelet of the nodes from Cluster.AddNodes.
	Kwok bool
	// PodsEnd ends the containers of deleted pods at once even if the pods have finalizers. Otherwise they keep
	// running. Kwok only.
	PodsEnd bool

	// Network is where the components run. Default: on this machine's loopback.
	Network *Network

	// Audit records every request for Cluster.Requests.
	Audit bool
	// Flags are added to the command lines of components and override the flags of this package.
	Flags map[Component][]string
	// Output receives lines of progress, one in each Write, also when a component ends by itself. Default: they are
	// dropped.
	Output io.Writer
}

// Network is a separate network for the components. They only listen on its address, and processes in the namespaces
// reach them there.
type Network struct {
	Namespaces *namespace.Namespaces
	// Address is the address of an interface in the namespaces.
	Address netip.Addr
}

// address returns the address that the components listen on.
func (o Options) address() string {
	if o.Network == nil {
		return "127.0.0.1"
	}
	return o.Network.Address.String()
}

// within calls f in the network of the components.
func (o Options) within(f func() error) error {
	if o.Network == nil {
		return f()
	}
	return o.Network.Namespaces.Do(f)
}

// enter returns the Enter function of the components' processes.
func (o Options) enter() func() error {
	if o.Network == nil {
		return nil
	}
	return o.Network.Namespaces.Enter
}

// dial returns the dialer of clients. nil is the standard one.
func (o Options) dial() func(context.Context, string, string) (net.Conn, error) {
	if o.Network == nil {
		return nil
	}
	return o.Network.Namespaces.Dial
}

// complete fills in the defaults and checks that everything needed exists.
func (o Options) complete() (completed Options, temporary bool, err error) {
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Tools == "" {
		if o.Tools, err = tools.Folder(); err != nil {
			return o, false, err
		}
	}
	// The components run in the state directory, where relative paths of the caller would refer to other files.
	if o.Tools, err = filepath.Abs(o.Tools); err != nil {
		return o, false, fmt.Errorf("finding the tools: %w", err)
	}
	for _, name := range append([]Component{Etcd, APIServer}, o.clients()...) {
		if _, err := os.Stat(filepath.Join(o.Tools, string(name))); err != nil {
			return o, false, fmt.Errorf("the tool %s is missing: %w (run `make tools` in the repository root)", name, err)
		}
	}
	if o.Dir == "" {
		o.Dir, err = os.MkdirTemp("", "managementcluster-")
		return o, true, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, false, fmt.Errorf("finding the state directory: %w", err)
	}
	return o, false, os.MkdirAll(o.Dir, 0o755)
}

// clients returns the requested components besides etcd and the API server.
func (o Options) clients() []Component {
	var names []Component
	for name, wanted := range map[Component]bool{
		ControllerManager: o.ControllerManager, Scheduler: o.Scheduler, Kwok: o.Kwok,
	} {
		if wanted {
			names = append(names, name)
		}
	}
	return names
}
