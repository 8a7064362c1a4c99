package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// pod returns a running pod "<namespace>/<name>" after changes.
func pod(name string, changes ...func(*corev1.Pod)) corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners("ReplicaSet")},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func owners(kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: "x", Controller: ptr.To(true)}}
}

func ofDaemonSet(p *corev1.Pod)  { p.OwnerReferences = owners("DaemonSet") }
func withoutOwner(p *corev1.Pod) { p.OwnerReferences = nil }
func mirror(p *corev1.Pod) {
	p.OwnerReferences, p.Annotations = owners("Node"), map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}
func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}
func localData(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

// goneAt sets the time from now at which the grace period of a deleted pod ends.
func goneAt(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(d))) }
}

// askedAgo marks a pod as deleted some time ago with a grace period.
func askedAgo(d, grace time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		goneAt(grace - d)(p)
		p.DeletionGracePeriodSeconds = ptr.To(int64(grace / time.Second))
	}
}

// silentFor gives a machine a Node whose kubelet has not responded for some time.
func silentFor(d time.Duration) func(*drain.Machine) {
	return func(m *drain.Machine) {
		m.Node = node(corev1.ConditionUnknown, true)
		m.Node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(m.Now.Add(-d))
	}
}

func node(ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
	return &corev1.Node{
		Spec:   corev1.NodeSpec{Unschedulable: cordoned},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// worker returns a machine of a healthy cluster whose Node has these pods.
func worker(pods ...corev1.Pod) drain.Machine {
	return drain.Machine{
		Watched: true, Connected: true, Masters: 3, Healthy: 3, Node: node(corev1.ConditionTrue, true), Pods: pods,
		Waited: time.Minute, Timeout: time.Hour, Now: now,
	}
}

func with(m drain.Machine, changes ...func(*drain.Machine)) drain.Machine {
	for _, change := range changes {
		change(&m)
	}
	return m
}

func master(masters, healthy int) func(*drain.Machine) {
	return func(m *drain.Machine) { m.Master, m.Masters, m.Healthy = true, masters, healthy }
}
func unreachable(m *drain.Machine) { m.Connected, m.Node, m.Pods = false, nil, nil }
func uncordoned(m *drain.Machine)  { m.Node = node(corev1.ConditionTrue, false) }
func nodeIs(s corev1.ConditionStatus) func(*drain.Machine) {
	return func(m *drain.Machine) { m.Node = node(s, true) }
}
func waited(d time.Duration) func(*drain.Machine) { return func(m *drain.Machine) { m.Waited = d } }
func silent(d time.Duration) func(*drain.Machine) { return func(m *drain.Machine) { m.Silent = d } }
func serves(m *drain.Machine)                     { m.Serves = true }
func votes(m *drain.Machine)                      { m.Votes = true }
func namespaceGoes(m *drain.Machine)              { m.NamespaceGoes = true }
func unwatched(m *drain.Machine)                  { m.Watched = false }
func graceOver(m *drain.Machine)                  { m.Waited, m.Grace = 5*time.Minute, 5*time.Minute }

// TestDrainTable is the table of what happens to a node pod that is deleted.
func TestDrainTable(t *testing.T) {
	web, dns := pod("default/web"), pod("kube-system/coredns")
	for name, row := range map[string]struct {
		machine drain.Machine
		// want is what is done, then the reason: cordon, evict <pods>, wait <pods>, release, finish.
		want string
	}{
		"nothing runs there":                                        {worker(), "release; Drained"},
		"not cordoned":                                              {with(worker(web), uncordoned), "cordon; evict default/web; wait default/web; Draining"},
		"its Node was recreated during the drain":                   {with(worker(pod("default/web", goneAt(20*time.Second))), uncordoned), "cordon; wait default/web; Draining"},
		"not cordoned, and empty":                                   {with(worker(), uncordoned), "cordon; Draining"},
		"cordoned, a pod is left":                                   {worker(web), "evict default/web; wait default/web; Draining"},
		"a pod was asked and is on its way":                         {worker(pod("default/web", goneAt(20*time.Second))), "wait default/web; Draining"},
		"a pod is late by less than a minute":                       {worker(pod("default/web", goneAt(-50*time.Second))), "wait default/web; Draining"},
		"a pod is late, its kubelet does not answer":                {worker(pod("default/web", goneAt(-61*time.Second))), "release; Drained"},
		"a DaemonSet's pod":                                         {worker(pod("default/agent", ofDaemonSet)), "release; Drained"},
		"a static pod":                                              {worker(pod("kube-system/etcd", mirror)), "release; Drained"},
		"a pod without owner":                                       {worker(pod("default/alone", withoutOwner)), "evict default/alone; wait default/alone; Draining"},
		"a pod with local data":                                     {worker(pod("default/scratch", localData)), "evict default/scratch; wait default/scratch; Draining"},
		"a pod that has finished":                                   {worker(pod("default/job", phase(corev1.PodSucceeded))), "release; Drained"},
		"a pod that has failed":                                     {worker(pod("default/job", phase(corev1.PodFailed))), "release; Drained"},
		"a pod that has not begun":                                  {worker(pod("default/new", phase(corev1.PodPending))), "evict default/new; wait default/new; Draining"},
		"the system's pods are asked last":                          {worker(dns, web), "evict default/web; wait default/web kube-system/coredns; Draining"},
		"they still wait for one on its way":                        {worker(dns, pod("default/web", goneAt(time.Second))), "wait default/web kube-system/coredns; Draining"},
		"only the system's are left":                                {worker(dns), "evict kube-system/coredns; wait kube-system/coredns; Draining"},
		"the Node does not exist":                                   {with(worker(), noNode), "release; NodeMissing"},
		"a master's Node does not exist, and its machine serves on": {with(worker(), noNode, master(3, 1), serves), "QuorumAtRisk"},
		"a master's Node does not exist, and the others stay":       {with(worker(), noNode, master(3, 2), serves), "release; NodeMissing"},
		"a master's Node does not exist, and its machine is dead":   {with(worker(), noNode, master(3, 1)), "release; NodeMissing"},
		"a pod may take a day, and its kubelet answers":             {worker(pod("default/kafka", askedAgo(time.Hour, 24*time.Hour))), "wait default/kafka; Draining"},
		"a pod may take a day, its kubelet says that it is not Ready": {
			with(worker(pod("default/kafka", askedAgo(time.Hour, 24*time.Hour))), nodeIs(corev1.ConditionFalse)), "wait default/kafka; Draining",
		},
		"a pod may take a day, and its kubelet is silent": {
			with(worker(pod("default/kafka", askedAgo(time.Hour, 24*time.Hour))), silentFor(time.Hour)), "release; Drained",
		},
		"it was asked a moment ago, and its kubelet is silent for long": {
			with(worker(pod("default/kafka", askedAgo(5*time.Minute, 24*time.Hour))), silentFor(time.Hour)), "wait default/kafka; Draining",
		},
		"it was asked long ago, and its kubelet has become silent a moment ago": {
			with(worker(pod("default/kafka", askedAgo(time.Hour, 24*time.Hour))), silentFor(5*time.Minute)), "wait default/kafka; Draining",
		},
		"one was asked and cannot end, another one was not asked": {
			with(worker(pod("default/kafka", askedAgo(time.Hour, 24*time.Hour)), pod("default/protected")), silentFor(time.Hour)), "evict default/protected; wait default/protected; Draining",
		},
		"the Node is not Ready":             {with(worker(web), nodeIs(corev1.ConditionUnknown)), "evict default/web; wait default/web; Draining"},
		"the time is over":                  {with(worker(web), waited(time.Hour)), "release; DrainTimedOut"},
		"the time is almost over":           {with(worker(web), waited(time.Hour-1)), "evict default/web; wait default/web; Draining"},
		"there is no limit":                 {with(worker(web), waited(1000*time.Hour), func(m *drain.Machine) { m.Timeout = 0 }), "evict default/web; wait default/web; Draining"},
		"the API does not answer":           {with(worker(), unreachable), "ClusterUnreachable"},
		"it has not answered until the end": {with(worker(), unreachable, waited(time.Hour)), "release; DrainTimedOut"},
		"it does not answer, and goes with its namespace, at first": {with(worker(), unreachable, namespaceGoes), "ClusterUnreachable"},
		"it does not answer, and goes with its namespace, for long": {with(worker(), unreachable, namespaceGoes, silent(2*time.Minute)), "release; NamespaceDeleted"},
		"it does not answer, a master, at first":                    {with(worker(), unreachable, master(1, 0)), "ClusterUnreachable"},
		"it does not answer, a master, for long":                    {with(worker(), unreachable, master(1, 0), silent(2*time.Minute)), "release; MasterUnreachable"},
		"it answered a moment ago, a master that waits for long":    {with(worker(), unreachable, master(1, 0), waited(50*time.Minute)), "ClusterUnreachable"},
		"it does not answer, and the other masters serve":           {with(worker(), unreachable, master(3, 2), serves, silent(2*time.Minute)), "release; MasterUnreachable"},
		"it does not answer, and another master is away":            {with(worker(), unreachable, master(3, 1), serves, silent(2*time.Minute)), "QuorumAtRisk"},
		"it does not answer, and this master is away":               {with(worker(), unreachable, master(3, 1), silent(2*time.Minute)), "release; MasterUnreachable"},
		"the only master":                          {with(worker(dns), master(1, 0)), "evict kube-system/coredns; wait kube-system/coredns; Draining"},
		"one of three masters":                     {with(worker(), master(3, 2)), "release; Drained"},
		"one of three, another is away":            {with(worker(dns), master(3, 1)), "QuorumAtRisk"},
		"one of three, it is the one that is away": {with(worker(), master(3, 1), nodeIs(corev1.ConditionFalse)), "release; Drained"},
		"one of three, its kubelet is silent, its etcd is healthy, another is away": {
			with(worker(), master(3, 1), nodeIs(corev1.ConditionUnknown), votes), "QuorumAtRisk",
		},
		"the others of a majority go with the namespace":          {with(worker(), master(3, 0), namespaceGoes), "release; Drained"},
		"and it still waits for pods":                             {with(worker(web), master(3, 0), namespaceGoes), "evict default/web; wait default/web; Draining"},
		"one of five, another is away":                            {with(worker(), master(5, 3)), "release; Drained"},
		"one of five, two others are away":                        {with(worker(), master(5, 2)), "QuorumAtRisk"},
		"etcd at risk, and the time is over":                      {with(worker(), master(3, 1), waited(time.Hour)), "QuorumAtRisk"},
		"etcd at risk, and the host ends the pod":                 {with(worker(), master(3, 1), graceOver), "release; GracePeriodOver"},
		"the host ends the pod":                                   {with(worker(web), graceOver), "release; GracePeriodOver"},
		"the cluster is deleted":                                  {with(worker(web), func(m *drain.Machine) { m.ClusterGone = true }), "release; ClusterDeleted"},
		"a snapshot is restored":                                  {with(worker(web), master(3, 0), func(m *drain.Machine) { m.Restoring = true }), "release; Restoring"},
		"the host shuts down":                                     {with(worker(web), func(m *drain.Machine) { m.HostShutsDown = true }), "release; HostShutsDown"},
		"no operator watches the cluster":                         {with(worker(), unreachable, unwatched), "release; NotWatched"},
		"no operator watches the cluster, another master is away": {with(worker(), unreachable, unwatched, master(3, 1), serves), "QuorumAtRisk"},
		"it was released":                                         {with(worker(web), func(m *drain.Machine) { m.Released = drain.TimedOut }), "DrainTimedOut"},
		"it has ended":                                            {with(worker(web), func(m *drain.Machine) { m.Stopped = true }), "finish"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, say(drain.Decide(row.machine))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func noNode(m *drain.Machine) { m.Node = nil }

func say(d drain.Decision) string {
	var words []string
	add := func(yes bool, word string) {
		if yes {
			words = append(words, word)
		}
	}
	add(d.Cordon, "cordon")
	add(len(d.Evict) > 0, "evict "+list(d.Evict))
	add(len(d.Left) > 0, "wait "+list(d.Left))
	add(d.Release, "release")
	add(d.Finish, "finish")
	add(d.Reason != "", string(d.Reason))
	return strings.Join(words, "; ")
}

func list(pods []corev1.Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, " ")
}

// TestEverySmallState checks every decision against the rules that keep a cluster alive.
func TestEverySmallState(t *testing.T) {
	states, failures := 0, 0
	each(func(m drain.Machine) {
		states++
		d := drain.Decide(m)
		for sentence, holds := range rules {
			if !holds(m, d) && failures < 10 {
				failures++
				t.Errorf("not so: %s\n%+v\n%s", sentence, m, say(d))
			}
		}
	})
	t.Logf("%d states decided", states)
	if states != smallStates {
		t.Errorf("%d states are decided, want %d", states, smallStates)
	}
}

// smallStates is the number of these states.
const smallStates = 12_582_912

// each visits every combination of the states of a machine.
func each(visit func(drain.Machine)) {
	both := []bool{false, true}
	nodes := []*corev1.Node{nil, node("True", false), node("True", true), node("False", true), node("Unknown", false), {}}
	pods := [][]corev1.Pod{
		nil, {pod("default/web")}, {pod("default/web", goneAt(time.Second))}, {pod("default/web", goneAt(-time.Hour))},
		{pod("default/kafka", askedAgo(time.Hour, 24*time.Hour))}, {pod("default/agent", ofDaemonSet)}, {pod("kube-system/dns"), pod("default/web")}, {pod("kube-system/dns")},
	}
	times := combinations([]time.Duration{0, time.Hour}, 4)
	for _, bits := range combinations(both, 11) {
		for _, masters := range [][2]int{{1, 0}, {3, 0}, {3, 1}, {3, 2}, {5, 1}, {5, 2}, {5, 3}, {5, 4}} {
			for _, n := range nodes {
				for _, p := range pods {
					for _, t := range times {
						m := drain.Machine{
							Stopped: bits[0], ClusterGone: bits[1], HostShutsDown: bits[2], Watched: bits[3], Connected: bits[4], Master: bits[5],
							Masters: masters[0], Healthy: masters[1], Node: n, Pods: p, Now: now,
							Waited: t[0], Timeout: t[1], Grace: t[2], Silent: t[3],
						}
						m.Serves, m.Restoring, m.Votes, m.NamespaceGoes = bits[7], bits[8], bits[9], bits[10]
						if bits[6] {
							m.Released = drain.Drained
						}
						visit(m)
					}
				}
			}
		}
	}
}

func combinations[T any](values []T, length int) [][]T {
	all := [][]T{nil}
	for range length {
		var next [][]T
		for _, head := range all {
			for _, v := range values {
				next = append(next, append(slices.Clone(head), v))
			}
		}
		all = next
	}
	return all
}

func over(m drain.Machine) bool { return m.Timeout > 0 && m.Waited >= m.Timeout }

// unconditional returns whether no pod has to be waited for, and nothing can be kept.
func unconditional(m drain.Machine) bool {
	return m.ClusterGone || m.Restoring || m.HostShutsDown || m.Grace > 0 && m.Waited >= m.Grace
}

// free returns whether pods are not waited for.
func free(m drain.Machine) bool { return unconditional(m) || !m.Watched || over(m) }

// atRisk returns whether etcd has quorum only with this master.
func atRisk(m drain.Machine) bool {
	part := m.Votes || m.Node == nil && m.Serves || m.Node != nil && joining.Ready(m.Node)
	return m.Master && !m.NamespaceGoes && m.Masters > 1 && part && m.Healthy < m.Masters/2+1
}

var rules = map[string]func(drain.Machine, drain.Decision) bool{
	"a pod goes only when nothing of it runs": func(m drain.Machine, d drain.Decision) bool { return d.Finish == m.Stopped },
	"a machine that has ended or was released is not released again": func(m drain.Machine, d drain.Decision) bool {
		return !d.Release || !m.Stopped && m.Released == ""
	},
	"no pod is evicted from a machine that was released": func(m drain.Machine, d drain.Decision) bool {
		return m.Released == "" || len(d.Evict) == 0 && !d.Cordon
	},
	"a machine with pods that count is released only for a reason": func(m drain.Machine, d drain.Decision) bool {
		return !d.Release || free(m) || slices.Contains([]drain.Reason{drain.NodeMissing, drain.Drained, drain.MasterUnreachable, drain.NamespaceDeleted}, d.Reason)
	},
	"a worker whose cluster does not answer is kept until its time is over": func(m drain.Machine, d drain.Decision) bool {
		return m.Master || m.NamespaceGoes || m.Connected || free(m) || !d.Release
	},
	"etcd quorum is never given up, however long that takes and whatever is seen": func(m drain.Machine, d drain.Decision) bool {
		return !atRisk(m) || unconditional(m) || !d.Release
	},
	"a master goes announced, unless nothing can keep it": func(m drain.Machine, d drain.Decision) bool {
		return d.NeedsAnnouncement(m) == (d.Release && m.Master && m.Masters > 1 && !unconditional(m))
	},
	"the only master can always be drained and released": func(m drain.Machine, d drain.Decision) bool {
		return !m.Master || m.Masters > 1 || d.Reason != drain.QuorumAtRisk
	},
	"nothing is evicted unless the Node is or gets cordoned": func(m drain.Machine, d drain.Decision) bool {
		return len(d.Evict) == 0 || d.Cordon || m.Node != nil && m.Node.Spec.Unschedulable
	},
	"no machine is taken for drained before its Node is cordoned": func(m drain.Machine, d drain.Decision) bool {
		return !d.Release || d.Reason != drain.Drained || m.Node.Spec.Unschedulable
	},
	"a Node that is cordoned is not cordoned again": func(m drain.Machine, d drain.Decision) bool {
		return !d.Cordon || m.Node != nil && !m.Node.Spec.Unschedulable
	},
	"nothing is asked of a cluster that does not answer": func(m drain.Machine, d drain.Decision) bool {
		return m.Connected || len(d.Evict) == 0 && !d.Cordon
	},
	"who waits looks again by itself": func(m drain.Machine, d drain.Decision) bool {
		waits := !d.Finish && !d.Release && m.Released == ""
		return !waits || d.After > 0
	},
	"every decision but the last gives a reason": func(_ drain.Machine, d drain.Decision) bool {
		return d.Finish || d.Reason != "" && d.Message != ""
	},
	"a pod that has time left is waited for, unless its kubelet is silent": func(m drain.Machine, d drain.Decision) bool {
		left := slices.ContainsFunc(m.Pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil && p.DeletionTimestamp.After(m.Now) })
		silent := m.Node != nil && len(m.Node.Status.Conditions) > 0 && m.Node.Status.Conditions[0].Status == corev1.ConditionUnknown
		return !left || silent || d.Reason != drain.Drained || m.Released != ""
	},
	"what is evicted is also waited for": func(_ drain.Machine, d drain.Decision) bool {
		return len(d.Evict) <= len(d.Left)
	},
	"a machine is released when its time is over at the latest": func(m drain.Machine, d drain.Decision) bool {
		return !over(m) || atRisk(m) || d.Release || d.Finish || m.Released != ""
	},
}

func TestManyPodsAreCounted(t *testing.T) {
	var pods []corev1.Pod
	for i := range 5 {
		pods = append(pods, pod(fmt.Sprintf("default/web-%d", i)))
	}
	want := "waits for default/web-0, default/web-1, default/web-2 and 2 more"
	if got := drain.Decide(worker(pods...)).Message; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}
