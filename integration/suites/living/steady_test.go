package living_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

const (
	// restful is how long the test watches a cluster at rest, and heart is how often its kubelets report in that time.
	restful = 30 * time.Second
	heart   = 500 * time.Millisecond
	// forced is the number of reconciles in that time that have no reason.
	forced = 20
)

// costsNothing: the operator sends no requests to the management cluster or the workload cluster, except watches,
// although kubelets report and the operator reconciles the cluster repeatedly.
func costsNothing(t *testing.T, l *living, operator *lab.Operator) {
	lab.AwaitSteadyTokens(t)
	pods := []*corev1.Pod{l.pod(t, "m0aaa"), l.pod(t, "w0aaa"), l.pod(t, "w1aaa")}
	l.touch(t) // an operator that has just started sees it
	l.settle(t, operator, time.Second)
	l.await(t, isTrue("Ready"))
	if writes := operator.Requests.Writes(); len(writes) > 0 {
		t.Errorf("an operator that has just begun writes for a cluster that is Ready: %v", writes)
	}
	asked := l.audited(t)
	operator.Requests.Reset()
	passes := where.Passes(l.id)
	ticker := time.NewTicker(heart)
	defer ticker.Stop()
	for began, beats := time.Now(), 0; time.Since(began) < restful; beats++ {
		<-ticker.C
		for _, pod := range pods {
			l.report(t, pod, ready())
		}
		if beats < forced {
			l.touch(t)
		}
	}
	l.touch(t)
	// For pods that other tests delete at the same time, the operator asks the API server for the owner, because they
	// belong to another operator.
	elsewhere := func(r lab.Request) bool {
		return strings.Contains(r.Path, "/kvmconfigs/") && !strings.HasSuffix(r.Path, "/"+l.id)
	}
	if requests := slices.DeleteFunc(operator.Requests.All(), elsewhere); len(requests) > 0 {
		t.Errorf("the management cluster was asked %d times in %s: %v", len(requests), restful, requests[:min(len(requests), 20)])
	}
	if more := l.audited(t)[len(asked):]; len(more) > 0 {
		t.Errorf("the workload cluster was asked %d times in %s: %v", len(more), restful, more[:min(len(more), 20)])
	}
	// Each touch triggers one reconcile. A heartbeat must not.
	if woken := where.Passes(l.id) - passes; woken > 2*(forced+1) {
		t.Errorf("the operator went over the cluster %d times, %d times of which it was made to", woken, forced+1)
	}
}

// settle waits until the operator has been idle for some time.
func (l *living) settle(t testing.TB, operator *lab.Operator, calm time.Duration) {
	t.Helper()
	last, since := -1, time.Now()
	lab.Eventually(t, patience, func() error {
		if now := len(operator.Requests.All()) + where.Passes(l.id); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < calm {
			return errNotYet
		}
		return nil
	})
}

func (l *living) audited(t testing.TB) []managementcluster.Request {
	t.Helper()
	requests, err := l.Asked()
	must(t, err)
	if len(requests) == 0 {
		t.Fatal("the audit log knows no request of the operator, which has made a whole cluster")
	}
	return requests
}
