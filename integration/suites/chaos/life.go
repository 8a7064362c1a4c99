package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/etcdguest"
	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const (
	// stepsLeast and stepsMost bound the number of changes and faults in a chaos run. pace is the longest pause between
	// two.
	stepsLeast, stepsMost = 2, 5
	pace                  = 1500 * time.Millisecond
	// settling is how long a cluster may take to become what its KVMConfig says, or to be deleted, without faults and
	// on a busy machine.
	settling = 10 * time.Minute
	// telling is how long something may be missing without a condition that reports it. Conditions may be somewhat
	// late.
	telling = time.Minute
	// mostWorkers is the largest number of workers of a cluster.
	mostWorkers = 4
)

// life is the life of one cluster over one or more chaos runs.
type life struct {
	world *World
	id    string
	line  *tenant.Line
	// made reports that its KVMConfig exists or is being deleted. born counts the workers so far, and bornMasters the
	// masters. Their ids are never reused.
	made              bool
	born, bornMasters int
	// restores counts the snapshots that were requested to be restored.
	restores int64

	// seed and random are those of the chaos run.
	seed   uint64
	random *rand.Rand

	mu sync.Mutex
	// ledger is what a client writes to the cluster's etcd. It is nil if there is none.
	ledger    *etcdguest.Ledger
	log       []string
	complaint string
	// cut is since when the workload cluster is cut off. It is zero while it is not.
	cut time.Time
	// minUnhealthy is how long a node must have been unhealthy before it was replaced: the smallest value that was ever
	// set.
	minUnhealthy time.Duration
}

// begin begins another chaos run.
func (c *life) begin(seed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seed, c.random, c.log, c.complaint = seed, rand.New(rand.NewPCG(seed, 1)), nil, ""
}

func (c *life) say(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
}

// cutFor is how long the workload cluster has been cut off.
func (c *life) cutFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut.IsZero() {
		return 0
	}
	return time.Since(c.cut)
}

func (c *life) cutAt(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = t
}

// replacesAfter is the minimum time that a node is unhealthy before it is replaced.
func (c *life) replacesAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.minUnhealthy
}

// failed records what ended the chaos run. The first failure counts.
func (c *life) failed(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complaint == "" {
		c.complaint = time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, arguments...)
	}
}

func (c *life) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complaint == "" {
		return nil
	}
	return []string{fmt.Sprintf("cluster %s: %s\n  %s", c.id, c.complaint, c.storyLocked())}
}

// storyLocked returns the log of the chaos run. The caller holds the lock.
func (c *life) storyLocked() string {
	return fmt.Sprintf("seed %d\n  %s", c.seed, strings.Join(c.log, "\n  "))
}

// story returns the log of the chaos run.
func (c *life) story() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.storyLocked()
}

// storm changes the cluster and injects faults into it. It creates the cluster first if there is none.
func (c *life) storm(ctx context.Context) {
	if err := c.declare(ctx); err != nil {
		c.failed("declaring the cluster: %s", err)
		return
	}
	// Some changes happen while it is being created.
	if c.random.IntN(3) > 0 {
		c.await(ctx, c.young)
	}
	if err := c.forge(ctx); err != nil {
		c.failed("forging owners: %s", err)
	}
	for range stepsLeast + c.random.IntN(stepsMost-stepsLeast+1) {
		pause(ctx, c.some(pace))
		s := steps[c.random.IntN(len(steps))]
		switch err := s.do(c, ctx); {
		case errors.Is(err, errGoing):
			return
		case err != nil:
			c.failed("%s: %s", s.name, err)
			return
		}
	}
}

// errGoing ends the storm of a chaos run: the cluster is being deleted, and another one takes its name when the run
// settles.
var errGoing = errors.New("the cluster is being deleted")

// declare creates the cluster unless it exists. In every other one, unhealthy nodes are replaced from the start.
func (c *life) declare(ctx context.Context) error {
	if c.made {
		return nil
	}
	masters := 1 + 2*c.random.IntN(2)
	if err := c.make(ctx, masters, 1+c.random.IntN(2)); err != nil || c.random.IntN(2) == 0 {
		return err
	}
	return c.remediate(ctx)
}

// make creates the cluster with this number of masters and workers.
func (c *life) make(ctx context.Context, masters, workers int) error {
	if c.line == nil {
		line, err := tenant.NewLine(ctx, c.world.server.Address(), 0)
		if err != nil {
			return err
		}
		c.line = line
		c.world.places.Put(c.id, line.Address)
	}
	c.made, c.bornMasters, c.born = true, masters, workers
	c.say("a cluster with %d masters and %d workers", masters, workers)
	if hasEtcd(c.id) {
		c.setLedger(c.world.machines.Open(metav1.NamespaceDefault, c.id))
		c.line.Cut()
		go c.serve(ctx, c.line, c.currentLedger())
	}
	return c.world.server.Declare(ctx, c.world.lab.Client, fixture.MakeCluster(c.id).Masters(masters).Workers(workers).Label(labelRun, c.id).Obj())
}

// serve makes the API server answer once etcd does. No API server works without etcd.
func (c *life) serve(ctx context.Context, line *tenant.Line, ledger *etcdguest.Ledger) {
	for !ledger.Begun() {
		if ctx.Err() != nil || c.currentLedger() != ledger {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut.IsZero() && c.ledger == ledger {
		line.Restore()
	}
}

// labelRun is a label on KVMConfigs with the id of the cluster, by which an operator can select only that one.
const labelRun = "example.org/chaos-run"

// await gives the cluster some time and continues in any case, because faults are injected into operators now.
func (c *life) await(ctx context.Context, condition func(context.Context) error) {
	for began := time.Now(); time.Since(began) < 20*time.Second && condition(ctx) != nil && ctx.Err() == nil; {
		pause(ctx, 100*time.Millisecond)
	}
}

func (c *life) young(ctx context.Context) error {
	config, err := c.config(ctx, c.world.seen)
	if err == nil && !meta.IsStatusConditionTrue(config.Status.Conditions, "NodesReady") {
		err = errors.New("its nodes are not Ready")
	}
	return err
}

// settle waits until the cluster is what its KVMConfig says.
func (c *life) settle(ctx context.Context) {
	if config, err := c.config(ctx, c.world.lab.Client); apierrors.IsNotFound(err) || err == nil && config.DeletionTimestamp != nil {
		c.bound(ctx, c.gone)
		c.made = false
		if err := c.declare(ctx); err != nil {
			c.failed("declaring the cluster again: %s", err)
		}
	}
	var untold time.Time
	c.bound(ctx, func(ctx context.Context) error {
		// The watched state may be late, so the API server decides.
		err := c.settled(ctx, c.world.seen)
		if err == nil {
			err = c.settled(ctx, c.world.lab.Client)
		}
		switch {
		case err == nil || errors.As(err, &told{}):
			untold = time.Time{}
		case untold.IsZero():
			untold = time.Now()
		case time.Since(untold) > telling:
			c.failed("for %s all conditions have been True although something is missing: %s%s", telling, err, c.situation(ctx))
			untold = time.Time{}
		}
		return err
	})
	c.discard(ctx)
}

func (c *life) bound(ctx context.Context, condition func(context.Context) error) {
	began := time.Now()
	for {
		err := condition(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) > settling {
			c.failed("not within %s: %s%s", settling, err, c.situation(ctx))
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (c *life) config(ctx context.Context, from client.Reader) (*v1alpha1.KVMConfig, error) {
	config := &v1alpha1.KVMConfig{}
	return config, from.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: c.id}, config)
}

// change changes the KVMConfig. On a busy machine, an update takes so long that the operator's writes cause several
// conflicts in a row.
func (c *life) change(ctx context.Context, by func(*v1alpha1.KVMConfig)) error {
	conflicts := wait.Backoff{Steps: 60, Duration: 100 * time.Millisecond, Jitter: 1}
	return retry.RetryOnConflict(conflicts, func() error {
		config, err := c.config(ctx, c.world.lab.Client)
		if err != nil {
			return err
		}
		by(config)
		return c.world.lab.Client.Update(ctx, config)
	})
}

// pods returns the node pods, including those that are being deleted.
func (c *life) pods(ctx context.Context, from client.Reader) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := from.List(ctx, &pods, client.InNamespace(key.Namespace(c.id)), client.HasLabels{key.LabelNode})
	return pods.Items, err
}

// situation describes what else is known of a cluster that does not settle.
func (c *life) situation(ctx context.Context) string {
	var text strings.Builder
	var deployments appsv1.DeploymentList
	var replicaSets appsv1.ReplicaSetList
	var events corev1.EventList
	for _, list := range []client.ObjectList{&deployments, &replicaSets, &events} {
		if err := c.world.lab.Client.List(ctx, list, client.InNamespace(key.Namespace(c.id))); err != nil {
			fmt.Fprintf(&text, "\n  %s", err)
		}
	}
	for _, d := range deployments.Items {
		fmt.Fprintf(&text, "\n  Deployment %s: %d wanted, %+v", d.Name, ptr.Deref(d.Spec.Replicas, -1), d.Status)
	}
	for _, r := range replicaSets.Items {
		fmt.Fprintf(&text, "\n  ReplicaSet %s: %d wanted, %+v", r.Name, ptr.Deref(r.Spec.Replicas, -1), r.Status)
	}
	pods, err := c.pods(ctx, c.world.lab.Client)
	for _, p := range pods {
		fmt.Fprintf(&text, "\n  pod %s: deleted %v, finalizers %v, %+v", p.Name, p.DeletionTimestamp, p.Finalizers, p.Status.Conditions)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning {
			fmt.Fprintf(&text, "\n  %s %s, %d times, last %s: %s", e.Reason, e.InvolvedObject.Name, e.Count, e.LastTimestamp.Format(time.TimeOnly), e.Message)
		}
	}
	if err != nil {
		fmt.Fprintf(&text, "\n  %s", err)
	}
	return text.String() + c.world.machines.Story(c.id)
}
