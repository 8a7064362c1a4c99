package election_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// slack is how much longer than promised a busy machine may take.
const slack = 2 * time.Second

// pair starts a leader and a replica that waits. The replica is ready and has work, but does nothing.
func pair(t *testing.T, test string) (leader, other *replica) {
	t.Helper()
	leader = start(t, test, "leader")
	leader.says(t, "/readyz", "this replica leads")
	want(t, test, test+"a")
	leader.acts(t, lab.Timeout)
	other = start(t, test, "other")
	other.says(t, "/readyz", "the Lease default/"+test+" is held by ")
	leader.says(t, "/metrics", `leader_election_master_status{name="`+test+`"} 1`)
	other.says(t, "/metrics", `leader_election_master_status{name="`+test+`"} 0`)
	if writes := other.writes(t); len(writes) > 0 {
		t.Fatalf("the replica that waits has sent %v", writes)
	}
	return leader, other
}

// want creates a KVMConfig that the operators of a test reconcile.
func want(t *testing.T, test, id string) {
	t.Helper()
	config := fixture.MakeCluster(id).Obj()
	config.Labels = map[string]string{"test": test}
	theLab.Create(t, config)
	t.Cleanup(func() {
		// No operator is left that would remove its finalizers.
		lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) { c.Finalizers = nil })
		theLab.Delete(t, config)
	})
}

func TestAnotherActsAfterTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	leader, other := pair(t, "kill")
	began := time.Now()
	leader.signal(t, syscall.SIGKILL)
	want(t, "kill", "killb")
	other.acts(t, holds+2*time.Second+slack)
	t.Logf("another acts %s after the leader was killed; the Lease holds %s", time.Since(began).Round(time.Millisecond), holds)
}

func TestAnotherActsAtOnceAfterTheLeaderEndsInOrder(t *testing.T) {
	t.Parallel()
	leader, other := pair(t, "term")
	began := time.Now()
	leader.signal(t, syscall.SIGTERM)
	want(t, "term", "termb")
	other.acts(t, 2*time.Second+slack)
	before := leader.writes(t)
	t.Logf("another acts %s after the leader was asked to end", time.Since(began).Round(time.Millisecond))
	select {
	case <-leader.Done():
	case <-time.After(lab.Timeout):
		t.Fatal("the leader does not end")
	}
	if ended := leader.Failure().Error(); !strings.Contains(ended, "exit status 0") {
		t.Error(ended)
	}
	if after := leader.writes(t); len(after) != len(before) {
		t.Errorf("the leader was asked to end and has sent %v", after[len(before):])
	}
}

// TestALeaderThatWasStoppedWritesNothingWhenItGoesOn: it writes nothing although it was stopped during its work, and
// ends.
func TestALeaderThatWasStoppedWritesNothingWhenItGoesOn(t *testing.T) {
	t.Parallel()
	leader, other := pair(t, "stop")
	// Some of these have started, and others have not.
	for i := range 12 {
		want(t, "stop", fmt.Sprintf("stop%d", i))
	}
	time.Sleep(50 * time.Millisecond)
	leader.signal(t, syscall.SIGSTOP)
	other.acts(t, holds+2*time.Second+slack)
	// The API server has answered every request that was sent before the Lease expired.
	before := leader.writes(t)
	began := time.Now()
	leader.signal(t, syscall.SIGCONT)
	select {
	case <-leader.Done():
	case <-time.After(holds):
		t.Error("the leader that was stopped does not end")
	}
	t.Logf("it ends %s after it was continued, having sent %d writes before", time.Since(began).Round(time.Millisecond), len(before))
	time.Sleep(500 * time.Millisecond) // the API server may still answer
	if after := leader.writes(t); len(after) != len(before) {
		t.Errorf("the leader that was stopped has sent %v", after[len(before):])
	}
}
