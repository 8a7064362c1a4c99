// Package chaos runs clusters through seeded chaos runs of changes and faults, and checks the safety rules all the
// time.
//
// A World is a management cluster, an operator that crashes, lags and gets no answers, an API server of workload
// clusters, and simulated machines. A chaos run is a part of one cluster's life in it. Its seed determines
// what happens, but not when, because all parts are real processes.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/etcdguest"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// hosts is the number of hosts for each role. It is larger than the number of nodes of a cluster.
const hosts = 8

// World is where chaos runs take place. Close it when done.
type World struct {
	lab       *lab.Lab
	server    *tenant.Server
	places    tenant.Places
	simulator *simulator
	// machines are those of masters with a member of etcd.
	machines *etcdguest.Machines
	judge    *judge
	// seen is the watched state of the management cluster, which may lag. Repeated reads cost no requests.
	seen client.Reader
	// foreign are the objects of other clients. Some of them claim to belong to a cluster.
	foreign foreignObjects
	// lives are the lives of the clusters so far.
	lives []*life

	cancel context.CancelFunc
}

// Start starts a world for this number of parallel chaos runs.
func Start(ctx context.Context, atOnce int) (*World, error) {
	w := &World{judge: newJudge()}
	ctx, w.cancel = context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() (err error) {
		w.lab, err = lab.Start(ctx, managementcluster.Options{
			ControllerManager: true, Scheduler: true, Kwok: true,
			Flags: map[managementcluster.Component][]string{
				managementcluster.ControllerManager: {"--kube-api-qps=1000", "--kube-api-burst=1000", "--concurrent-namespace-syncs=50"},
				managementcluster.Scheduler:         {"--kube-api-qps=1000", "--kube-api-burst=1000"},
			},
		})
		return err
	})
	group.Go(func() (err error) {
		w.server, err = tenant.Start(managementcluster.Options{}, ids(atOnce)...)
		return err
	})
	err := group.Wait()
	if err == nil {
		err = w.populate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *World) populate(ctx context.Context) error {
	for _, role := range []string{key.RoleMaster, key.RoleWorker} {
		if _, err := w.lab.AddNodes(ctx, hosts, map[string]string{key.LabelManagementNodesRole: role}); err != nil {
			return fmt.Errorf("making hosts: %w", err)
		}
	}
	if err := w.lab.PlayKubelets(ctx); err != nil {
		return fmt.Errorf("playing the kubelets of hosts: %w", err)
	}
	var err error
	if w.machines, err = etcdguest.New(w.lab.Client, lab.Settings().ClusterDomain); err != nil {
		return fmt.Errorf("preparing machines with members of etcd: %w", err)
	}
	if w.simulator, err = newSimulator(ctx, w); err != nil {
		return fmt.Errorf("starting the simulator of machines: %w", err)
	}
	if err := w.createForeignObjects(ctx); err != nil {
		return fmt.Errorf("creating foreign objects: %w", err)
	}
	w.seen, err = w.judge.watch(ctx, w)
	return err
}

// Close ends the world and all of its processes.
func (w *World) Close() error {
	w.cancel()
	var errs []error
	for _, l := range w.lives {
		l.setLedger(nil)
	}
	if w.machines != nil {
		errs = append(errs, w.machines.Close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Stop())
	}
	if w.server != nil {
		errs = append(errs, w.server.Close())
	}
	return errors.Join(errs...)
}

// withEtcd is the number of clusters that have an etcd. All others have masters that look healthy to the operator and
// never change.
const withEtcd = 6

// hasEtcd reports whether the cluster has an etcd.
func hasEtcd(id string) bool { return slices.Contains(ids(withEtcd), id) }

// ids returns the ids of the clusters of chaos runs.
func ids(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("x%02d", i))
	}
	return all
}

// Result is the result of a batch of chaos runs.
type Result struct {
	// Violations are violated rules and expected results that did not occur, each with the seed of its chaos run.
	Violations []string
	// Suspects are violations of rules that are not yet known to be right.
	Suspects []string
	// Faults counts the operator's faults by name. Lives is how often the operator started.
	Faults map[string]int
	Lives  int
	// Requests is the number of the operator's requests, and Busiest is the most frequent one in a short time.
	Requests int
	Busiest  string
	// Stormy and Settled are the durations of the parts of the batch.
	Stormy, Settled time.Duration
}

// Batch starts count chaos runs in parallel, the first one with the given seed, while faults are injected into the
// operator. At the end the faults stop. Then each cluster has to become what its KVMConfig says and cause no more
// requests. The clusters stay for the next batch.
func (w *World) Batch(ctx context.Context, seed uint64, count int) Result {
	var r Result
	lap := stopwatch()
	for _, id := range ids(count)[min(count, len(w.lives)):] {
		w.lives = append(w.lives, &life{world: w, id: id})
	}
	lives := w.lives[:count]
	o := newOperators(w, rand.New(rand.NewPCG(seed, 0)))
	stormy, calm := context.WithCancel(ctx)
	defer calm()
	over := make(chan struct{})
	go func() {
		defer close(over)
		o.run(stormy)
	}()
	for _, l := range lives {
		l.begin(seed)
		seed++
	}
	all(lives, func(l *life) { l.storm(ctx) })
	calm()
	<-over
	r.Stormy = lap()
	last := o.begin(nil)
	all(lives, func(l *life) { l.settle(ctx) })
	o.costsNothing(ctx, w.judge)
	last.close(w.judge)
	r.Settled = lap()
	r.Faults, r.Lives, r.Requests, r.Busiest = o.faults, o.lives, o.requests(), o.busiest()
	r.Violations, r.Suspects = w.verdict(lives)
	r.Violations = append(r.Violations, w.foreign.changed(ctx)...)
	return r
}

// End deletes all clusters without faults. It returns what is left of them and why, and the suspects.
func (w *World) End(ctx context.Context) (violations, suspects []string) {
	o := newOperators(w, rand.New(rand.NewPCG(0, 0)))
	last := o.begin(nil)
	all(w.lives, func(l *life) { l.end(ctx) })
	last.close(w.judge)
	violations, suspects = w.verdict(w.lives)
	return append(violations, w.foreign.changed(ctx)...), suspects
}

func all(lives []*life, do func(*life)) {
	var group sync.WaitGroup
	for _, l := range lives {
		group.Go(func() { do(l) })
	}
	group.Wait()
}

// verdict returns the violations and suspects, each with the chaos runs that it concerns, and the clusters that did not
// settle.
func (w *World) verdict(lives []*life) (violations, suspects []string) {
	violations, suspects = w.judge.verdict()
	for _, found := range [][]string{violations, suspects} {
		for i, text := range found {
			for _, l := range lives {
				if strings.Contains(text, " "+l.id+"/") {
					found[i] += "\n  " + l.story()
				}
			}
		}
	}
	for _, l := range lives {
		violations = append(violations, l.complaints()...)
	}
	return violations, suspects
}

// stopwatch returns a function that returns the time since its last call.
func stopwatch() func() time.Duration {
	last := time.Now()
	return func() time.Duration {
		took := time.Since(last)
		last = time.Now()
		return took
	}
}

// pause waits for d, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
