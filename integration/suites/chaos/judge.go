package chaos

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// known is how long ago an event must have happened for the operator to know it when it acts.
const known = 5 * time.Second

// outdated is how old the operator's data may be when it writes, because its watches lag behind or it was paused.
const outdated = 30 * time.Second

// blurred is the possible difference of two times in whole seconds, from clocks set by answers of an API server.
const blurred = 2 * time.Second

// judge sees every change and records violations of the rules.
type judge struct {
	mu         sync.Mutex
	violations []string
	// suspects are violations of rules that are not yet known to be right.
	suspects []string
	// machines are each master's pods whose machine may run, by namespace and node.
	machines map[string]map[string]bool
	// placing are the pods that replace a master's data with a snapshot, by namespace.
	placing map[string]map[string]bool
	// uses and renames are the directories of hosts that machines use and that are to be renamed, by pod.
	uses, renames map[string]string
	// indexes are the node indexes of each cluster, by name and UID of its KVMConfig.
	indexes map[string]map[string]int32
	// ran are the pods whose machines have run, and released those whose runners were asked to power the machine down, by
	// namespace and name.
	ran, released map[string]bool
	// ready are the addresses of current and former Ready pods by namespace, with the end of their readiness or zero.
	ready map[string]map[string]time.Time
}

func newJudge() *judge {
	return &judge{
		machines: map[string]map[string]bool{}, placing: map[string]map[string]bool{}, indexes: map[string]map[string]int32{},
		uses: map[string]string{}, renames: map[string]string{},
		ran: map[string]bool{}, released: map[string]bool{}, ready: map[string]map[string]time.Time{},
	}
}

// violated records a violation.
func (j *judge) violated(format string, arguments ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.violations = append(j.violations, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
}

// suspected records a suspect.
func (j *judge) suspected(format string, arguments ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.suspects = append(j.suspects, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
}

// verdict returns the violations and the suspects since its last call.
func (j *judge) verdict() (violations, suspects []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	violations, suspects = j.violations, j.suspects
	j.violations, j.suspects = nil, nil
	return violations, suspects
}

// watch starts to watch the management cluster and returns a reader of what it sees.
func (j *judge) watch(ctx context.Context, w *World) (client.Reader, error) {
	c, err := crcache.New(w.lab.RESTConfig(), crcache.Options{Scheme: w.lab.Client.Scheme(), Mapper: w.lab.Client.RESTMapper()})
	if err != nil {
		return nil, err
	}
	for kind, see := range map[client.Object]func(object any, gone bool){
		&corev1.Pod{}:                j.checkPod,
		&v1alpha1.KVMConfig{}:        j.checkConfig,
		&corev1.Namespace{}:          func(any, bool) {},
		&discoveryv1.EndpointSlice{}: func(object any, gone bool) { j.checkSlice(ctx, object, gone) },
	} {
		informer, err := c.GetInformer(ctx, kind, crcache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { see(object, false) },
			UpdateFunc: func(before, object any) {
				if before.(client.Object).GetResourceVersion() != object.(client.Object).GetResourceVersion() {
					see(object, false)
				}
			},
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				see(object, true)
			},
		}); err != nil {
			return nil, err
		}
	}
	go func() { _ = c.Start(ctx) }() // it ends with the world
	if !c.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("the management cluster is not seen: %w", ctx.Err())
	}
	return c, nil
}

// checkPod: at most one machine uses the disk of a master, and no machine of a master runs while a snapshot replaces
// its data. No pod disappears while its machine runs.
func (j *judge) checkPod(object any, gone bool) {
	pod := object.(*corev1.Pod)
	if strings.HasPrefix(pod.Labels[batchv1.JobNameLabel], key.EtcdPlacing) {
		j.checkPlacing(pod, gone)
		return
	}
	j.checkDirectory(pod, gone)
	if pod.Labels[key.LabelNode] == "" {
		return
	}
	j.mu.Lock()
	j.recordReadiness(pod, gone)
	node := pod.Namespace + "/" + pod.Labels[key.LabelNode]
	if j.machines[node] == nil {
		j.machines[node] = map[string]bool{}
	}
	delete(j.machines[node], pod.Name)
	if !gone && runs(pod) && pod.Labels[key.LabelApp] == key.RoleMaster {
		j.machines[node][pod.Name] = true
	}
	held := j.goesHeld(pod, gone)
	several, placing := len(j.machines[node]) > 1, len(j.machines[node]) > 0 && len(j.placing[pod.Namespace]) > 0
	j.mu.Unlock()
	if held {
		j.suspected("%s/%s is gone, and its runner was never asked to power the machine down: grace period %d, host %q, %+v",
			pod.Namespace, pod.Name, ptr.Deref(pod.DeletionGracePeriodSeconds, -1), pod.Spec.NodeName, pod.Status)
	}
	if several {
		j.violated("%s: two machines of one master run", node)
	}
	if placing {
		j.violated("%s: the machine runs while a snapshot replaces its data", node)
	}
}

// recordReadiness records the Ready addresses, and until when the others were Ready.
func (j *judge) recordReadiness(pod *corev1.Pod, gone bool) {
	if pod.Status.PodIP == "" {
		return
	}
	of := j.ready[pod.Namespace]
	if of == nil {
		of = map[string]time.Time{}
		j.ready[pod.Namespace] = of
	}
	was, seen := of[pod.Status.PodIP]
	switch {
	case !gone && lab.ConditionOf(pod, corev1.PodReady) == corev1.ConditionTrue:
		of[pod.Status.PodIP] = time.Time{}
	case seen && was.IsZero():
		of[pod.Status.PodIP] = time.Now()
	}
}

// justBound is how long after its binding a pod may lose its grace period to a deletion that began before.
const justBound = 10 * time.Second

// goesHeld reports that a pod is gone whose machine ran and whose runner was not asked. The API server drops the grace
// period of a pod without a host, even if the pod is bound while the deletion is retried. Such a pod counts as asked.
func (j *judge) goesHeld(pod *corev1.Pod, gone bool) bool {
	name := pod.Namespace + "/" + pod.Name
	if ptr.Deref(pod.DeletionGracePeriodSeconds, -1) == 0 && (!j.ran[name] || pod.DeletionTimestamp.Sub(boundAt(pod)) < justBound) {
		j.released[name] = true
	}
	j.ran[name] = j.ran[name] || runs(pod)
	return gone && j.ran[name] && !j.released[name]
}

// boundAt is when a pod was bound to a host, or the zero time if it was not.
func boundAt(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func (j *judge) checkPlacing(pod *corev1.Pod, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.placing[pod.Namespace] == nil {
		j.placing[pod.Namespace] = map[string]bool{}
	}
	delete(j.placing[pod.Namespace], pod.Name)
	if gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	j.placing[pod.Namespace][pod.Name] = true
	for node, machines := range j.machines {
		if strings.HasPrefix(node, pod.Namespace+"/") && len(machines) > 0 {
			j.violations = append(j.violations, fmt.Sprintf("%s/%s is created while the machine of master %s runs", pod.Namespace, pod.Name, node))
		}
	}
}

// checkConfig: no two nodes have the same index, and no index changes.
func (j *judge) checkConfig(object any, _ bool) {
	config := object.(*v1alpha1.KVMConfig)
	if config.Status.KVM == nil {
		return
	}
	id := config.Name + " " + string(config.UID)
	now, owner := config.Status.KVM.NodeIndexes, map[int32]string{}
	j.mu.Lock()
	before := j.indexes[id]
	j.indexes[id] = now
	j.mu.Unlock()
	for node, index := range now {
		if other, ok := owner[index]; ok {
			j.violated("%s: nodes %s and %s both have index %d", config.Name, node, other, index)
		}
		owner[index] = node
		if was, ok := before[node]; ok && was != index {
			j.violated("%s: the index of node %s was %d and is %d", config.Name, node, was, index)
		}
	}
}

// checkSlice: every address in a slice belongs to a pod that is Ready or was a moment ago. Pods come from another
// watch, which may be later.
func (j *judge) checkSlice(ctx context.Context, object any, gone bool) {
	slice := object.(*discoveryv1.EndpointSlice)
	if gone || slice.Labels[key.LabelGSCluster] == "" {
		return
	}
	written := time.Now()
	if len(j.unready(slice, written)) == 0 {
		return
	}
	go func() {
		pause(ctx, known)
		if left := j.unready(slice, written); len(left) > 0 {
			j.violated("%s/%s: %v are addresses of pods that are not Ready and have not been within the last %s", slice.Namespace, slice.Name, left, outdated)
		}
	}()
}

// unready returns the addresses in a slice of pods that had not been Ready for some time when it was written.
func (j *judge) unready(slice *discoveryv1.EndpointSlice, written time.Time) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue // a terminating master that is the last one serving
		}
		for _, a := range e.Addresses {
			if until, seen := j.ready[slice.Namespace][a]; !seen || !until.IsZero() && written.Sub(until) > outdated {
				all = append(all, a)
			}
		}
	}
	return all
}

// checkRelease is called while the machine still runs. It reports a violation if a pod on the machine could still run
// elsewhere, or if the other masters are no majority.
func (j *judge) checkRelease(ctx context.Context, s *simulator, namespace, name string) {
	j.mu.Lock()
	j.released[namespace+"/"+name] = true
	j.mu.Unlock()
	pod, err := s.management.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || !runs(pod) {
		return // it was released before
	}
	if pod.DeletionTimestamp == nil {
		j.violated("%s/%s: the machine is released, and its pod is not being deleted", namespace, name)
	}
	config, err := s.owner(ctx, namespace)
	if err != nil || config == nil || config.DeletionTimestamp != nil {
		return // the whole cluster is being deleted
	}
	if pod.Labels[key.LabelApp] == key.RoleMaster {
		j.checkMasterRelease(ctx, s, pod)
		return
	}
	web, err := s.inside.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "web-"+name, metav1.GetOptions{})
	if err == nil && web.DeletionTimestamp == nil && time.Since(web.CreationTimestamp.Time) > known {
		j.violated("%s/%s: the machine is released, and pod %s on it was not evicted", namespace, name, web.Name)
	}
}

// deletion matches the path of a request to delete a pod.
var deletion = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)$`)

// observe passes the requests of one operator to the judge.
func (j *judge) observe(w *World, counter *requestCounter) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if match := deletion.FindStringSubmatch(request.URL.Path); match != nil && request.Method == http.MethodDelete {
				j.checkReplacement(request.Context(), w, match[1], match[2])
			}
			if what, limit := counter.count(request, time.Now()); limit > 0 {
				j.violated("the operator is in an endless loop: %d times %s within %s", limit, what, countingPeriod)
			}
			return next.RoundTrip(request)
		})
	}
}

// checkReplacement is called when the operator deletes a pod to replace an unhealthy node. The node must have been
// unhealthy for long, only one is replaced at a time, and the operator must reach the workload cluster.
func (j *judge) checkReplacement(ctx context.Context, w *World, namespace, name string) {
	at := slices.IndexFunc(w.lives, func(l *life) bool { return l.id == namespace })
	if at < 0 || w.lives[at].cutFor() >= known {
		j.violated("%s/%s is replaced while the workload cluster is cut off", namespace, name)
		return
	}
	if unready, least := w.simulator.unreadyFor(ctx, name), w.lives[at].replacesAfter(); unready < least-blurred {
		j.violated("%s/%s is replaced after it was not Ready for %s, want at least %s", namespace, name, unready, least)
	}
	pods, err := w.simulator.management.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: key.LabelNode})
	if err != nil {
		return // faults of the API server are not judged
	}
	for i := range pods.Items {
		other := &pods.Items[i]
		if other.Name == name || other.DeletionTimestamp == nil {
			continue
		}
		grace := time.Duration(ptr.Deref(other.DeletionGracePeriodSeconds, 0)) * time.Second
		if since := time.Since(other.DeletionTimestamp.Add(-grace)); since > known {
			j.violated("%s/%s is replaced while %s has been terminating for %s", namespace, name, other.Name, since.Round(time.Millisecond))
		}
	}
}

func (j *judge) checkMasterRelease(ctx context.Context, s *simulator, pod *corev1.Pod) {
	name := key.DeploymentName(key.RoleMaster, pod.Labels[key.LabelNode])
	deployment, err := s.management.AppsV1().Deployments(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && deployment.Annotations[key.AnnotationEtcdHalted] != "" {
		return // all masters are stopped because a snapshot replaces their data
	}
	pods, err := s.management.CoreV1().Pods(pod.Namespace).List(ctx, metav1.ListOptions{LabelSelector: key.LabelApp + "=" + key.RoleMaster})
	if err != nil {
		return // faults of the API server are not judged
	}
	if ledger := s.world.ledgerOf(pod.Namespace); ledger != nil {
		j.checkMemberRelease(ctx, ledger, pod)
		return
	}
	masters, healthy := map[string]bool{}, map[string]bool{}
	for i := range pods.Items {
		other := &pods.Items[i]
		masters[other.Labels[key.LabelNode]] = true
		since := s.hangsSince(other.Name)
		if other.Name != pod.Name && runs(other) && (since.IsZero() || time.Since(since) < known) {
			healthy[other.Labels[key.LabelNode]] = true
		}
	}
	if !s.hangsSince(pod.Name).IsZero() || len(masters) < 2 {
		return // it is not part of the majority, or is the only one
	}
	if len(healthy) <= len(masters)/2 {
		j.violated("%s/%s: the machine is released, and %d of %d masters are left", pod.Namespace, pod.Name, len(healthy), len(masters))
	}
}

// owner returns the KVMConfig of the cluster in a namespace, or nil when there is none.
func (s *simulator) owner(ctx context.Context, namespace string) (*v1alpha1.KVMConfig, error) {
	config := &v1alpha1.KVMConfig{}
	err := s.world.lab.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: namespace}, config)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return config, err
}
