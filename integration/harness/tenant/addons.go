package tenant

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// player makes add-ons available, because these API servers have neither controllers nor kubelets. It sets the status
// of each DaemonSet and Deployment to all pods available. Tests choose which ones are not.
type player struct {
	client client.Client
	end    context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	broken map[client.ObjectKey]bool
}

// playEvery is the interval of the player.
const playEvery = 200 * time.Millisecond

func play(c client.Client) *player {
	ctx, end := context.WithCancel(context.Background())
	p := &player{client: c, end: end, broken: map[client.ObjectKey]bool{}}
	p.ended.Go(func() {
		for ctx.Err() == nil {
			p.round(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(playEvery):
			}
		}
	})
	return p
}

func (p *player) stop() {
	p.end()
	p.ended.Wait()
}

// round ignores errors because a test may have stopped the API server, and another round follows.
func (p *player) round(ctx context.Context) {
	var daemonSets appsv1.DaemonSetList
	if p.client.List(ctx, &daemonSets) == nil {
		for i := range daemonSets.Items {
			d := &daemonSets.Items[i]
			before := d.DeepCopy()
			d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: 1, NumberAvailable: p.pods(d), NumberReady: p.pods(d)}
			p.report(ctx, before, d, equality.Semantic.DeepEqual(before.Status, d.Status))
		}
	}
	var deployments appsv1.DeploymentList
	if p.client.List(ctx, &deployments) == nil {
		for i := range deployments.Items {
			d := &deployments.Items[i]
			before := d.DeepCopy()
			available := corev1.ConditionFalse
			if p.pods(d) > 0 {
				available = corev1.ConditionTrue
			}
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, AvailableReplicas: p.pods(d), ReadyReplicas: p.pods(d), Replicas: 1, UpdatedReplicas: 1,
				Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: available, Reason: "Played"}},
			}
			p.report(ctx, before, d, equality.Semantic.DeepEqual(before.Status, d.Status))
		}
	}
}

func (p *player) pods(object client.Object) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken[client.ObjectKeyFromObject(object)] {
		return 0
	}
	return 1
}

func (p *player) report(ctx context.Context, before, after client.Object, settled bool) {
	if !settled {
		_ = p.client.Status().Patch(ctx, after, client.MergeFrom(before))
	}
}

// Serve sets whether the pods of a DaemonSet or Deployment of the workload clusters become available. By default all
// do.
func (s *Server) Serve(namespace, name string, serves bool) {
	s.player.mu.Lock()
	defer s.player.mu.Unlock()
	s.player.broken[client.ObjectKey{Namespace: namespace, Name: name}] = !serves
}
