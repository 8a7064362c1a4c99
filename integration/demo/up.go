package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/managementcluster"
)

const (
	crds     = "helm/kvm-operator/crds"
	examples = "docs/examples/demo"
	// nodesPerRole are enough for each node pod to have a host of its own and for one more of each kind.
	nodesPerRole = 3
)

// up runs the demo from beginning to end. An interrupt is no error.
func up(ctx context.Context, s state, timeout time.Duration, exit bool) (err error) {
	if err := s.take(); err != nil {
		return err
	}
	d := newDemo(s)
	defer func() {
		interrupted := ctx.Err() != nil
		if interrupted {
			err = nil
		}
		err = errors.Join(err, d.end(err == nil))
	}()
	if err := d.start(ctx); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := d.follow(waiting, allReady); err != nil {
		return d.blocked(err)
	}
	d.say("every node pod is Ready")
	if exit {
		return nil
	}
	fmt.Print(d.hints())
	d.view.leave()
	return d.follow(ctx, never)
}

// demo is a demo while it runs.
type demo struct {
	state    state
	began    time.Time
	cluster  *managementcluster.Cluster
	operator *operator
	client   client.Client
	config   client.ObjectKey // of the KVMConfig to follow
	last     observation
	view     *view
}

func newDemo(s state) *demo {
	began := time.Now()
	return &demo{state: s, began: began, view: newView(os.Stdout, began)}
}

func (d *demo) start(ctx context.Context) error {
	d.say("building bin/kvm-operator")
	binary, err := buildOperator(ctx, d.state.root)
	if err != nil {
		return err
	}
	d.say("starting the management cluster")
	if err := d.startCluster(ctx); err != nil {
		return err
	}
	d.say("installing the CRDs of %s", crds)
	if err := d.applyCRDs(ctx); err != nil {
		return err
	}
	if d.operator, err = startOperator(d.state, d.cluster, binary); err != nil {
		return err
	}
	d.say("the operator runs: %s", d.operator.commandLine)
	d.say("applying %s", examples)
	return d.applyExamples(ctx)
}

func (d *demo) startCluster(ctx context.Context) error {
	cluster, err := managementcluster.Start(ctx, managementcluster.Options{
		Dir:               d.state.path("management-cluster"),
		ControllerManager: true, Scheduler: true, Kwok: true, PodsEnd: true,
		Output: progress{d},
	})
	if err != nil {
		return err
	}
	d.cluster = cluster
	if err := cluster.WriteKubeconfig(d.state.kubeconfig(), "admin", "system:masters"); err != nil {
		return err
	}
	for _, role := range []string{"master", "worker"} {
		names, err := cluster.AddNodes(ctx, nodesPerRole, map[string]string{"role": role})
		if err != nil {
			return err
		}
		d.say("simulated nodes with label role=%s: %v", role, names)
	}
	log.SetLogger(logr.Discard()) // controller-runtime complains when nobody says where its words should go
	d.client, err = client.New(cluster.RESTConfig(), client.Options{})
	return err
}

// end stops everything and, after a success, removes every trace; after a failure the logs stay.
func (d *demo) end(success bool) error {
	d.say("stopping")
	var errs []error
	if d.operator != nil {
		errs = append(errs, d.operator.stop())
	}
	if d.cluster != nil {
		errs = append(errs, d.cluster.Stop())
	}
	// From here on this process counts as stopped: clear would end it as one left behind.
	errs = append(errs, os.Remove(d.state.record()))
	if success {
		errs = append(errs, d.state.clear())
		d.say("everything is stopped and %s is removed", d.state.dir)
	} else {
		d.say("everything is stopped; the logs are kept in %s until the next demo or `make demo-down`", d.state.dir)
	}
	return errors.Join(errs...)
}

// progress says what is written to it, one line a Write.
type progress struct{ *demo }

func (p progress) Write(line []byte) (int, error) {
	p.say("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
