// Package managementcluster runs a real Kubernetes control plane on loopback or in its own network, for tests and for
// the demo. It always runs etcd and kube-apiserver; the controller manager, the scheduler and kwok (simulated nodes)
// are optional.
//
// Nothing is left behind: the processes end with the one that started them, even after SIGKILL, and Stop removes the
// state. Each cluster chooses its own ports, so any number of clusters can run at the same time.
package managementcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

const (
	startTimeout = 2 * time.Minute
	// portAttempts is how often Start retries with other ports when a chosen port is taken.
	portAttempts = 5
)

// errPortTaken marks the failure of a component whose port another process uses.
var errPortTaken = errors.New("the port is taken")

// Cluster is a running management cluster. Its methods may be called from several goroutines.
type Cluster struct {
	options   Options
	temporary bool // the state directory is removed by Stop
	lock      *os.File
	authority *authority
	admin     *rest.Config
	ports     ports

	mu      sync.Mutex // guards running and lock
	running map[Component]*process.Process
	saying  sync.Mutex
}

// Start starts a management cluster and returns when every component is ready and, with a controller manager, pods can
// be created in namespace default. The context limits only the start. Start gives up by itself after two minutes.
//
// An error names the component that failed and shows the end of its log. The logs of a failed start are kept.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := open(options)
	if err != nil {
		return nil, fmt.Errorf("preparing the management cluster: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err = c.startAll(limited)
		if err == nil {
			return c, nil
		}
		if attempt == portAttempts || !errors.Is(err, errPortTaken) {
			interrupted := errors.Is(ctx.Err(), context.Canceled)
			return nil, errors.Join(fmt.Errorf("starting the management cluster: %w", err), c.abandon(interrupted))
		}
		c.say("trying other ports: %v", err)
		if err := c.stopAll(); err != nil {
			return nil, errors.Join(err, c.release(c.temporary))
		}
	}
}

// open locks the state directory and creates everything in it that is the same for every start.
func open(options Options) (*Cluster, error) {
	options, temporary, err := options.complete()
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: options, temporary: temporary, running: map[Component]*process.Process{}}
	err = c.takeDirectory()
	if err == nil {
		c.authority, err = openAuthority(c.path("pki"))
	}
	if err != nil {
		return nil, errors.Join(err, c.release(temporary))
	}
	return c, nil
}

// startAll chooses ports and starts the components: etcd and the API server in parallel, the rest when these two are
// ready, because a controller manager that meets an API server without its initial roles gives up.
func (c *Cluster) startAll(ctx context.Context) error {
	err := c.options.within(func() (err error) {
		c.ports, err = choosePorts(c.options.address())
		return err
	})
	if err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startComponents(ctx, Etcd, APIServer); err != nil {
		return err
	}
	if err := c.startComponents(ctx, c.options.clients()...); err != nil {
		return err
	}
	if !c.options.ControllerManager {
		return nil
	}
	// The controller manager creates this account. Pods of the namespace are rejected until it exists.
	return c.await(ctx, ControllerManager, c.serverURL()+"/api/v1/namespaces/default/serviceaccounts/default")
}

// Stop stops every component and removes the state directory if Start created it. It may be called again.
func (c *Cluster) Stop() error {
	return errors.Join(c.stopAll(), c.release(c.temporary))
}

// stopAll kills the components at once. etcd's data survives a killed process because the kernel has every page that
// was written, the others have no state, and an API server that stops gracefully waits for its clients for ten seconds.
func (c *Cluster) stopAll() error {
	var errs []error
	for _, name := range slices.Backward(startOrder) {
		errs = append(errs, c.StopComponent(name))
	}
	return errors.Join(errs...)
}

// abandon stops the cluster after a failed start. The logs stay unless the caller interrupted the start.
func (c *Cluster) abandon(interrupted bool) error {
	errs := []error{c.stopAll()}
	if c.temporary && !interrupted {
		errs = append(errs, os.RemoveAll(c.path(etcdData)))
	}
	return errors.Join(append(errs, c.release(c.temporary && interrupted))...)
}

// Kubeconfig returns the path of a kubeconfig with the permissions of a cluster administrator.
func (c *Cluster) Kubeconfig() string { return c.path("admin.kubeconfig") }

// Dir returns the state directory. The logs are <component>.log, and, if audited, requests are in audit.log.
func (c *Cluster) Dir() string { return c.options.Dir }

// Tools returns the directory with the components' executables.
func (c *Cluster) Tools() string { return c.options.Tools }

func (c *Cluster) path(name string) string { return filepath.Join(c.options.Dir, name) }

// say prints a line of progress.
func (c *Cluster) say(format string, args ...any) {
	c.saying.Lock()
	defer c.saying.Unlock()
	fmt.Fprintf(c.options.Output, format+"\n", args...)
}
