package drain

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// deleted returns a scheduled pod whose deletion was requested a minute ago, with an hour of grace.
func deleted() *corev1.Pod {
	const grace = time.Hour
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: ptr.To(metav1.NewTime(time.Now().Add(grace - time.Minute))), DeletionGracePeriodSeconds: ptr.To(int64(grace.Seconds())),
		},
		Spec: corev1.PodSpec{NodeName: "host"},
	}
}

func TestWhenNothingOfAPodRuns(t *testing.T) {
	with := func(change func(*corev1.Pod)) *corev1.Pod {
		p := deleted()
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		change(p)
		return p
	}
	terminated := []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"its container runs": {with(func(*corev1.Pod) {}), false},
		"its container has ended, and may have started again": {with(func(p *corev1.Pod) { p.Status.ContainerStatuses = terminated }), false},
		"it has ended":                          {with(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		"it was deleted by force":               {with(func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = ptr.To[int64](0) }), true},
		"no host was ever found for it":         {with(func(p *corev1.Pod) { p.Spec.NodeName = "" }), true},
		"its host has not said anything yet":    {with(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), false},
		"its container waits to be started":     {with(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }), false},
		"its container is about to start again": {with(func(p *corev1.Pod) { p.DeletionTimestamp, p.Status.ContainerStatuses = nil, terminated }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Stopped(test.pod); got != test.want {
				t.Errorf("it has stopped: %t, want %t", got, test.want)
			}
		})
	}
}

func TestWhatPodsSayOfTheirEnd(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet},
		{Type: key.ConditionDrained, Status: corev1.ConditionTrue, Reason: string(TimedOut)},
	}}}
	if !EndedByHost(pod) || ReleasedFor(pod) != TimedOut || !Leaving(pod) {
		t.Errorf("ended by its host: %t, released for: %q, leaves: %t", EndedByHost(pod), ReleasedFor(pod), Leaving(pod))
	}
	if pod.Status.Conditions[1] = (corev1.PodCondition{}); !Leaving(pod) {
		t.Error("the pod that its host ends stays")
	}
	pod.Status.Conditions[1] = corev1.PodCondition{Type: key.ConditionDrained, Status: corev1.ConditionTrue, Reason: string(TimedOut)}
	pod.Status.Conditions[0].Reason, pod.Status.Conditions[1].Status = "EvictionByEvictionAPI", corev1.ConditionFalse
	if EndedByHost(pod) || ReleasedFor(pod) != "" {
		t.Errorf("evicted: ended by its host: %t, released for: %q", EndedByHost(pod), ReleasedFor(pod))
	}
}

func TestWhichMastersServe(t *testing.T) {
	pod := func(ready, containersReady corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "master-m1"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ready}, {Type: corev1.ContainersReady, Status: containersReady},
		}}}
	}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		nodes map[string]bool
		want  bool
	}{
		"pod and Node are Ready":                       {pod("True", "True"), map[string]bool{"master-m1": true}, true},
		"the Node is not":                              {pod("True", "True"), map[string]bool{"master-m1": false}, false},
		"the pod is not":                               {pod("False", "True"), map[string]bool{"master-m1": true}, false},
		"the Node was deleted, the machine is healthy": {pod("True", "True"), nil, true},
		"the Node of an unhealthy machine was deleted": {pod("False", "False"), map[string]bool{"master-m2": true}, false},
		"the Node is not seen, the host is dead":       {pod("False", "True"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Masters{Ready: test.nodes}).healthy(test.pod); got != test.want {
				t.Errorf("it serves: %t, want %t", got, test.want)
			}
		})
	}
}

// masters returns pods of masters that are Ready and have Ready Nodes.
func masters(ids ...string) (pods []corev1.Pod, ready map[string]bool) {
	ready = map[string]bool{}
	for _, id := range ids {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "master-" + id, Labels: map[string]string{key.LabelApp: key.RoleMaster, key.LabelNode: id}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			}},
		})
		ready["master-"+id] = true
	}
	return pods, ready
}

// TestLearnersAreNoMajority: while a cluster grows from one master to three, the first one must not be released as long
// as etcd depends on it, however healthy the others are.
func TestLearnersAreNoMajority(t *testing.T) {
	pods, ready := masters("m1", "m2", "m3")
	spec := []string{"m1", "m2", "m3"}
	for votes, want := range map[[3]etcd.Vote]int{
		{etcd.VoteGiven, etcd.VoteLearner, etcd.VoteNone}:      0,
		{etcd.VoteGiven, etcd.VoteGiven, etcd.VoteLearner}:     1,
		{etcd.VoteGiven, etcd.VoteGiven, etcd.VoteGiven}:       2,
		{etcd.VoteGiven, etcd.VoteMissing, etcd.VoteGiven}:     1,
		{etcd.VoteAwaited, etcd.VoteAwaited, etcd.VoteAwaited}: 0,
		{etcd.VoteUnknown, etcd.VoteUnknown, etcd.VoteUnknown}: 2,
	} {
		vote := func(id string) (etcd.Vote, int) { return votes[slices.Index([]string{"m1", "m2", "m3"}, id)], 0 }
		if masters, healthy := (Masters{Spec: spec, Pods: pods, Ready: ready, Vote: vote, Leaving: Leaving}).Count(&pods[0]); masters != 3 || healthy != want {
			t.Errorf("votes %v: %d of %d others are healthy, want %d of 3", votes, healthy, masters, want)
		}
	}
}

// TestARemovedMasterHoldsNoOther covers a master that was replaced because its host had died: its pod stays until an
// administrator declares the host dead, and once etcd has removed its member, the others may be released one by one.
func TestARemovedMasterHoldsNoOther(t *testing.T) {
	pods, ready := masters("m1", "m2", "m3", "m4")
	ready["master-m3"] = false
	spec := []string{"m1", "m2", "m4"}
	for left, want := range map[etcd.Vote]int{
		etcd.VoteNone: 3, etcd.VoteLearner: 3, etcd.VoteMissing: 4, etcd.VoteGiven: 4, etcd.VoteUnknown: 4, etcd.VoteAwaited: 4,
	} {
		vote := func(id string) (etcd.Vote, int) {
			if id == "m3" {
				return left, 0
			}
			return etcd.VoteGiven, 0
		}
		if masters, healthy := (Masters{Spec: spec, Pods: pods, Ready: ready, Vote: vote, Leaving: Leaving}).Count(&pods[0]); masters != want || healthy != 2 {
			t.Errorf("the vote of the one that left is %v: %d of %d others are healthy, want 2 of %d", left, healthy, masters, want)
		}
	}
}

// TestVotersWithoutAMachineCount: a member may have a vote although no machine of it is left, because its Deployment and
// its pod were deleted by force after its master was removed from the spec, or because a person added it. etcd needs a
// majority of all voters.
func TestVotersWithoutAMachineCount(t *testing.T) {
	const mine = 3
	for voters, goes := range map[int]bool{0: true, 1: true, 3: true, 4: false, 5: false} {
		pods, ready := masters("m1", "m2", "m3", "m4")
		pods[3].Status.Phase = corev1.PodFailed
		vote := func(string) (etcd.Vote, int) { return etcd.VoteGiven, voters }
		count, healthy := (Masters{Spec: []string{"m1", "m2", "m3"}, Pods: pods, Ready: ready, Vote: vote, Leaving: Leaving}).Count(&pods[0])
		if count != max(mine, voters) || healthy != 2 {
			t.Errorf("of %d voters: %d of %d others are healthy, want 2 of %d", voters, healthy, count, max(mine, voters))
		}
		if d := Decide(Machine{Master: true, Serves: true, Votes: true, Masters: count, Healthy: healthy}); d.Release != goes {
			t.Errorf("of %d voters: it is released: %t (%s), want %t", voters, d.Release, d.Message, goes)
		}
	}
}

// TestAVoterBesideASingleMasterDoesNotHoldIt: a tenant may add a member, and no other master could take over.
func TestAVoterBesideASingleMasterDoesNotHoldIt(t *testing.T) {
	pods, ready := masters("m1")
	vote := func(string) (etcd.Vote, int) { return etcd.VoteGiven, 2 }
	count, healthy := (Masters{Spec: []string{"m1"}, Pods: pods, Ready: ready, Vote: vote, Leaving: Leaving}).Count(&pods[0])
	if d := Decide(Machine{Master: true, Serves: true, Votes: true, Masters: count, Healthy: healthy}); !d.Release {
		t.Errorf("it is held (%d of %d others are healthy): %s", healthy, count, d.Message)
	}
}

// TestMastersThatAreIllGoOneByOne covers masters whose Nodes are not Ready because of a shared fault, and whose members
// of etcd are healthy: none of them could become Ready without being replaced.
func TestMastersThatAreIllGoOneByOne(t *testing.T) {
	spec := []string{"m1", "m2", "m3"}
	for name, test := range map[string]struct {
		own  bool
		vote etcd.Vote
		want int
	}{
		"the members of the others answer":       {false, etcd.VoteGiven, 2},
		"nothing is known of the members":        {false, etcd.VoteUnknown, 0},
		"the others' members do not answer":      {false, etcd.VoteMissing, 0},
		"one that is Ready does not go so":       {true, etcd.VoteGiven, 0},
		"the members have not been asked so far": {false, etcd.VoteAwaited, 0},
	} {
		pods, ready := masters("m1", "m2", "m3")
		ready["master-m1"], ready["master-m2"], ready["master-m3"] = test.own, false, false
		vote := func(string) (etcd.Vote, int) { return test.vote, 0 }
		if _, healthy := (Masters{Spec: spec, Pods: pods, Ready: ready, Vote: vote, Leaving: Leaving}).Count(&pods[0]); healthy != test.want {
			t.Errorf("%s: %d others are healthy, want %d", name, healthy, test.want)
		}
	}
}

// TestWhoMayBeAMember: a master whose Node is not Ready is released without checking the quorum only if its member is
// known not to count, or if neither etcd nor its runner reports that it does.
func TestWhoMayBeAMember(t *testing.T) {
	for name, test := range map[string]struct {
		own    etcd.Vote
		serves bool
		want   bool
	}{
		"its member answers":                             {etcd.VoteGiven, false, true},
		"its member answers, and its machine serves":     {etcd.VoteGiven, true, true},
		"no member was asked yet":                        {etcd.VoteAwaited, false, true},
		"no member was asked yet, its machine serves":    {etcd.VoteAwaited, true, true},
		"no member can be asked, its machine serves":     {etcd.VoteUnknown, true, true},
		"no member can be asked, its machine is dead":    {etcd.VoteUnknown, false, false},
		"its member does not answer, its machine serves": {etcd.VoteMissing, true, false},
		"its member does not answer":                     {etcd.VoteMissing, false, false},
		"it has no vote, its machine serves":             {etcd.VoteLearner, true, false},
		"it has no member, its machine serves":           {etcd.VoteNone, true, false},
		"it has no member":                               {etcd.VoteNone, false, false},
	} {
		if got := MayVote(test.own, test.serves); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
