package unhealthynodeterminator

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

var terminated = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kvm_operator_unhealthy_nodes_terminated_total",
	Help: "Node pods that were deleted because their Nodes stayed unready, by role.",
}, []string{"role"})

func init() { metrics.Registry.MustRegister(terminated) }

// terminator deletes the pods of unhealthy nodes and reports it in the log, by an event and by a counter.
type terminator struct {
	engine *apply.Engine
	events events.EventRecorder
}

// Terminate deletes a pod.
func (t terminator) Terminate(ctx context.Context, config *v1alpha1.KVMConfig, pod *corev1.Pod, why string) error {
	log.FromContext(ctx).Info("terminating an unhealthy node", "pod", pod.Name, "reason", why)
	if err := t.engine.DeletePod(ctx, pod); err != nil {
		return err
	}
	terminated.WithLabelValues(pod.Labels[key.LabelApp]).Inc()
	if t.events != nil {
		t.events.Eventf(config, pod, corev1.EventTypeWarning, "UnhealthyNodeTerminated", "Terminate", "%s: %s", pod.Name, why)
	}
	return nil
}
