package realcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// RESTConfig returns the configuration of a client, in this process, with the permissions of a cluster administrator.
// Streams (exec, port-forward) of client-go do not use its dialer, so use Kubectl or Publish for them.
func (c *Cluster) RESTConfig() *rest.Config { return c.plane.RESTConfig() }

// Kubeconfig returns the path of an administrator's kubeconfig for processes in the network of the control plane: for
// Run, and for `nsenter --net=/proc/PID/ns/net` with the PID of Cluster.PID.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig() }

// PID returns the id of the process that holds the network of the control plane, as this machine sees it.
func (c *Cluster) PID() int { return c.site.PID() }

// Dial connects from within the network of the control plane, which reaches nodes and pods, but no Services. Only nodes
// and their pods reach Services. Names are those of the cluster.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	resolved, err := c.resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	return c.site.Dial(ctx, network, resolved)
}

// Listen listens within the network of the control plane until the caller closes the listener. Nodes and pods reach it
// at Address.
func (c *Cluster) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return c.site.Listen(ctx, network, address)
}

// Address is the IP address of the control plane's network that nodes and pods reach.
func (c *Cluster) Address() string { return siteAddress.String() }

// resolve resolves the host of an address with the cluster's DNS.
func (c *Cluster) resolve(ctx context.Context, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) != nil {
		return address, err
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return c.site.Dial(ctx, network, net.JoinHostPort(siteAddress.String(), "53"))
	}}
	// With a trailing dot, no search domain of this machine is tried.
	addresses, err := resolver.LookupHost(ctx, strings.TrimSuffix(host, ".")+".")
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(addresses[0], port), nil
}

// Run runs a command in the network of the control plane until it ends.
func (c *Cluster) Run(command *exec.Cmd) error { return c.site.Run(command) }

// KubectlCommand returns kubectl as administrator, for Run.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, c.tool("kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	return command
}

// Kubectl runs kubectl as administrator and returns its standard output. When it fails, the error contains its standard
// error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with a standard input.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	command := c.KubectlCommand(ctx, args...)
	var output, complaint bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &output, &complaint
	if err := c.Run(command); err != nil {
		return output.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, &complaint)
	}
	return output.String(), nil
}

// Publish makes the API server reachable on 127.0.0.1 until Stop. It returns the path of an administrator's kubeconfig
// that works with any program of this machine.
func (c *Cluster) Publish(ctx context.Context) (kubeconfig string, err error) {
	address, err := c.Forward(ctx, c.plane.Address())
	if err != nil {
		return "", err
	}
	kubeconfig = c.path("kubeconfig")
	return kubeconfig, c.plane.WriteKubeconfigFor(kubeconfig, "https://"+address, "admin", administrators)
}

// Forward forwards a port of 127.0.0.1 to a TCP address in the network of the control plane until Stop. It returns
// 127.0.0.1 with the port.
func (c *Cluster) Forward(ctx context.Context, address string) (local string, err error) {
	return c.forward(ctx, c.Dial, address)
}

// Forward is Cluster.Forward to an address in the network of the node, which also reaches Services.
func (n *Node) Forward(ctx context.Context, address string) (local string, err error) {
	return n.cluster.forward(ctx, n.Dial, address)
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (c *Cluster) forward(ctx context.Context, dial dialer, address string) (local string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("forwarding to %s: %w", address, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return "", errors.Join(fmt.Errorf("forwarding to %s: the cluster has been stopped", address), listener.Close())
	}
	c.listeners = append(c.listeners, listener)
	go c.accept(listener, dial, address)
	return listener.Addr().String(), nil
}

func (c *Cluster) accept(listener net.Listener, dial dialer, address string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // it has been closed
		}
		go func() {
			defer from.Close()
			to, err := dial(context.Background(), "tcp", address)
			if err != nil {
				c.say("forwarding to %s: %v", address, err)
				return
			}
			defer to.Close()
			join(from, to)
		}()
	}
}

// join copies in both directions until both have ended. It passes on the end of each direction.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			// The two ends handle errors of a connection themselves.
			_, _ = io.Copy(pair[1], pair[0])
			if half, ok := pair[1].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}

// Explain returns what is known about a pod that is not as a test wants it: its description and its logs.
func (c *Cluster) Explain(namespace, pod string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all strings.Builder
	for _, args := range [][]string{{"describe", "pod", pod}, {"logs", pod, "--all-containers", "--prefix"}} {
		output, err := c.Kubectl(ctx, append([]string{"--namespace=" + namespace}, args...)...)
		fmt.Fprintln(&all, output)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}
