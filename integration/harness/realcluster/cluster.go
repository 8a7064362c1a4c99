// Package realcluster runs a real management cluster on this machine, for tests and for the demo: a control plane with
// DNS, and nodes with containerd, kubelet and kube-proxy that run real pods.
//
// Control plane and nodes are in separate network namespaces, joined by a bridge and connected to nothing else. So
// nothing listens on this machine's network, and no addresses conflict. Each node also has its own mounts and process
// ids.
//
// Nothing is left behind: everything that runs in a node ends with the process that started the cluster, even after
// SIGKILL, and mounts and interfaces are removed with it. Stop removes cgroups and state. After SIGKILL the next Start
// does this.
package realcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/namespace"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

const startTimeout = 4 * time.Minute

// Cluster is a running management cluster. Its methods may be called from several goroutines.
type Cluster struct {
	options   Options
	temporary bool   // the state directory is removed by Stop
	name      string // of the cgroups, and the prefix of a temporary directory's name
	lock      *os.File
	disks     string // directory of what nodes change in ownTrees
	site      *namespace.Namespaces
	plane     *managementcluster.Cluster
	dns       *process.Process
	nodes     []*Node

	mu        sync.Mutex // guards listeners and stopped
	listeners []io.Closer
	stopped   bool
	saying    sync.Mutex
}

// clusters numbers the clusters of this process.
var clusters atomic.Int64

// Start starts a cluster and returns when every node is Ready. The context limits only the start. Start gives up by
// itself after four minutes. It needs root.
//
// An error names the component that failed and shows the end of its log. The logs of a failed start are kept.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := open(options)
	if err != nil {
		return nil, fmt.Errorf("preparing the management cluster: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.start(limited); err != nil {
		interrupted := errors.Is(ctx.Err(), context.Canceled)
		return nil, errors.Join(fmt.Errorf("starting the management cluster: %w", err), c.abandon(interrupted))
	}
	return c, nil
}

func open(options Options) (*Cluster, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	mark, err := process.Mark()
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: fmt.Sprintf("%s%s-%d", namePrefix, mark, clusters.Add(1))}
	c.options = options
	if err := c.takeDirectory(); err != nil {
		return nil, errors.Join(err, c.release(c.temporary))
	}
	for i, node := range options.Nodes {
		c.nodes = append(c.nodes, &Node{cluster: c, number: i + 1, labels: node.Labels, weight: max(node.Weight, 1), running: map[NodeComponent]*process.Process{}})
	}
	return c, nil
}

// start starts the control plane and, in parallel, the container runtimes. Kubelets follow once there is an API server.
func (c *Cluster) start(ctx context.Context) error {
	if err := c.makeSite(); err != nil {
		return err
	}
	group, limited := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(limited) })
	for _, node := range c.nodes {
		group.Go(func() error { return node.prepare(limited) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	group, limited = errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		group.Go(func() error { return node.join(limited) })
	}
	return group.Wait()
}

func (c *Cluster) makeSite() error {
	if err := buildPause(c.pause()); err != nil {
		return err
	}
	if err := WriteImage(c.pauseArchive(), Image{Name: pauseImage, Entrypoint: []string{"/pause"}, Files: map[string]string{"/pause": c.pause()}}); err != nil {
		return err
	}
	site, err := namespace.Start(process.Command{Name: "site", Path: c.pause(), Dir: c.options.Dir}, namespace.Network)
	if err != nil {
		return err
	}
	c.site = site
	if err := site.Do(makeBridge); err != nil {
		return fmt.Errorf("making the network of the nodes: %w", err)
	}
	return nil
}

// startControlPlane starts everything that runs beside the nodes.
func (c *Cluster) startControlPlane(ctx context.Context) (err error) {
	c.plane, err = managementcluster.Start(ctx, managementcluster.Options{
		Dir: c.path("control-plane"), Tools: c.options.Tools, ControllerManager: true, Scheduler: true,
		Network: &managementcluster.Network{Namespaces: c.site, Address: siteAddress},
		Audit:   c.options.Audit, Flags: c.options.Flags, Output: c.options.Output,
	})
	if err != nil {
		return err
	}
	if err := c.startDNS(ctx); err != nil {
		return err
	}
	return c.weighControlPlane()
}

// weighControlPlane gives the processes beside the nodes their share of the CPUs. A process that is restarted later has
// the weight of any other process.
func (c *Cluster) weighControlPlane() error {
	cgroup := c.name + "/control-plane"
	if err := makeCgroup(cgroup, planeWeight); err != nil {
		return err
	}
	errs := []error{enlist(cgroup, c.dns.PID())}
	for _, component := range []managementcluster.Component{
		managementcluster.Etcd, managementcluster.APIServer, managementcluster.ControllerManager, managementcluster.Scheduler,
	} {
		errs = append(errs, enlist(cgroup, c.plane.PID(component)))
	}
	return errors.Join(errs...)
}

// Stop stops everything at once, including pods, and removes the state directory if Start created it. It may be called
// again.
func (c *Cluster) Stop() error {
	return errors.Join(c.stopAll(), c.release(c.temporary))
}

func (c *Cluster) stopAll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	var errs []error
	for _, listener := range c.listeners {
		errs = append(errs, listener.Close())
	}
	c.listeners = nil
	for _, node := range c.nodes {
		errs = append(errs, node.Kill())
	}
	if c.dns != nil {
		errs = append(errs, c.dns.Stop(0))
	}
	if c.plane != nil {
		errs = append(errs, c.plane.Stop())
	}
	if c.site != nil {
		errs = append(errs, c.site.Stop())
	}
	for _, path := range cgroupsNamed(c.name) {
		errs = append(errs, removeCgroup(path))
	}
	return errors.Join(errs...)
}

// abandon stops the cluster after a failed start. The logs stay unless the caller interrupted the start.
func (c *Cluster) abandon(interrupted bool) error {
	if interrupted {
		return c.Stop()
	}
	errs := []error{c.stopAll()}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.path("control-plane/etcd")))
		for _, node := range c.nodes {
			errs = append(errs, node.removeState())
		}
	}
	return errors.Join(append(errs, c.release(false))...)
}

// Dir returns the state directory. Logs are control-plane/<component>.log, <node>/<component>.log and coredns.log.
func (c *Cluster) Dir() string { return c.options.Dir }

// ControlPlane returns the cluster's control plane, to stop and start its components and to read requests.
func (c *Cluster) ControlPlane() *managementcluster.Cluster { return c.plane }

// Nodes returns the cluster's nodes, in the order of the options.
func (c *Cluster) Nodes() []*Node { return append([]*Node(nil), c.nodes...) }

// Node returns the node with an index, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

func (c *Cluster) path(name string) string { return filepath.Join(c.options.Dir, name) }
func (c *Cluster) tool(name string) string { return filepath.Join(c.options.Tools, name) }
func (c *Cluster) pause() string           { return c.path("pause") }
func (c *Cluster) pauseArchive() string    { return c.path("pause.tar") }

// say prints a line of progress.
func (c *Cluster) say(format string, args ...any) {
	c.saying.Lock()
	defer c.saying.Unlock()
	fmt.Fprintf(c.options.Output, format+"\n", args...)
}
