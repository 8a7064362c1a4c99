package managementcluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// Component names one process of a management cluster. It is also the name of its executable.
type Component string

// The components of a management cluster.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok"
)

// startOrder lists each component after those that it depends on.
var startOrder = []Component{Etcd, APIServer, ControllerManager, Scheduler, Kwok}

// health is the path at which each component answers 200 once it is ready.
var health = map[Component]string{
	Etcd: "/readyz", APIServer: "/readyz", ControllerManager: "/healthz", Scheduler: "/readyz", Kwok: "/healthz",
}

// StopComponent kills one component, as a crash would. It does nothing if the component does not run.
func (c *Cluster) StopComponent(name Component) error {
	c.mu.Lock()
	p := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Stop(0)
}

// StartComponent restarts one component after StopComponent or a crash, on its old port, and returns when it is ready.
func (c *Cluster) StartComponent(ctx context.Context, name Component) error {
	if err := c.startComponents(ctx, name); err != nil {
		return errors.Join(err, c.StopComponent(name))
	}
	return nil
}

// Restart is StopComponent and StartComponent.
func (c *Cluster) Restart(ctx context.Context, name Component) error {
	if err := c.StopComponent(name); err != nil {
		return err
	}
	return c.StartComponent(ctx, name)
}

// PID returns the process id of a component, or 0 when it does not run.
func (c *Cluster) PID(name Component) int {
	if p := c.process(name); p != nil {
		return p.PID()
	}
	return 0
}

// startComponents starts components in parallel and returns when all are ready.
func (c *Cluster) startComponents(ctx context.Context, names ...Component) error {
	for _, name := range names {
		if err := c.spawn(name); err != nil {
			return err
		}
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error {
			if err := c.await(ctx, name, c.ports.url(name)+health[name]); err != nil {
				return err
			}
			c.say("%s is ready after %.1fs", name, time.Since(began).Seconds())
			go c.watch(name)
			return nil
		})
	}
	return group.Wait()
}

func (c *Cluster) spawn(name Component) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil {
		return fmt.Errorf("%s cannot be started: the management cluster has been stopped", name)
	}
	if c.running[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	p, err := process.Start(process.Command{
		Name: string(name),
		Path: filepath.Join(c.options.Tools, string(name)),
		Args: append(c.flags(name), c.options.Flags[name]...),
		// Without this, kwok would add the stages in the user's home directory.
		Env:   []string{"KWOK_WORKDIR=" + c.path("no-kwok-home")},
		Dir:   c.Dir(),
		Enter: c.options.enter(),
	})
	if err != nil {
		return err
	}
	c.running[name] = p
	return nil
}

// watch reports a component that ends unexpectedly.
func (c *Cluster) watch(name Component) {
	p := c.process(name)
	if p == nil {
		return
	}
	<-p.Done()
	if c.process(name) != p {
		return
	}
	c.say("%v", p.Failure())
	if err := c.StopComponent(name); err != nil {
		c.say("%v", err)
	}
}

func (c *Cluster) process(name Component) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[name]
}

// await polls a URL until it answers 200. It gives up when the component ends or the context does.
func (c *Cluster) await(ctx context.Context, name Component, url string) error {
	p := c.process(name)
	if p == nil {
		return fmt.Errorf("%s has ended before it was ready", name)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(errors.New("the process has ended"))
		case <-ctx.Done():
		}
	}()
	err := c.authority.poll(ctx, url, c.options.dial())
	switch {
	case err == nil:
		return nil
	case p.PortTaken():
		return fmt.Errorf("%w: %w", errPortTaken, p.Failure())
	default:
		return errors.Join(fmt.Errorf("waiting for %s: %w", name, err), p.Failure())
	}
}
