package election_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestANewLeaderIsAnEventAtTheLease: with client-go's recorder, whose scheme has no Leases, as that of an operator.
func TestANewLeaderIsAnEventAtTheLease(t *testing.T) {
	broadcaster := events.NewBroadcaster(nil)
	defer broadcaster.Shutdown()
	sent := make(chan *eventsv1.Event, 1)
	stop, err := broadcaster.StartEventWatcher(func(event runtime.Object) { sent <- event.(*eventsv1.Event) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	l := replica(&leases{}, "first", "4.0.0", func() time.Duration { return time.Second })
	l.Announce(broadcaster.NewRecorder(runtime.NewScheme(), "kvm-operator"))
	if err := l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first", LeaseDurationSeconds: 10}); err != nil {
		t.Fatal(err)
	}
	l.RecordEvent("became leader")
	select {
	case event := <-sent:
		want := corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "giantswarm", Name: "kvm-operator", ResourceVersion: "b"}
		if event.Regarding != want || event.Namespace != "giantswarm" || event.Note != "first became leader" {
			t.Errorf("the event is about %+v in namespace %s: %q", event.Regarding, event.Namespace, event.Note)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event was sent")
	}
}
