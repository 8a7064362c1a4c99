package sessions_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/sessions"
)

// session is a session that runs until it ends.
type session struct {
	life context.Context
	end  context.CancelFunc
	ran  chan struct{}
}

func newSession() *session {
	s := &session{ran: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

func (s *session) run(context.Context) {
	<-s.life.Done()
	close(s.ran)
}

// TestSessionsEndWithTheirRunner: sessions that were added before Start, after it, or that were replaced have ended when
// Start returns, and one that is added later never runs.
func TestSessionsEndWithTheirRunner(t *testing.T) {
	all := sessions.New(func(ctx context.Context, s *session) { s.run(ctx) }, func(s *session) { s.end() })
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	never, always := func(*session) bool { return false }, func(*session) bool { return true }
	first, created := all.Ensure(a, always, newSession)
	if same, again := all.Ensure(a, always, newSession); !created || again || same != first {
		t.Error("a session that fits was replaced")
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- all.Start(ctx) }()
	second, created := all.Ensure(a, never, newSession)
	if !created || second == first || first.life.Err() == nil {
		t.Error("a session that does not fit continues")
	}
	other, _ := all.Ensure(b, always, newSession)
	if !all.End(b) || all.End(b) || other.life.Err() == nil {
		t.Error("a session was not ended once")
	}
	if _, exists := all.Get(b); exists {
		t.Error("a session that ended is known")
	}
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if second.life.Err() == nil {
		t.Error("a session continues after the end of Start")
	}
	late, _ := all.Ensure(b, always, newSession)
	all.End(b)
	select {
	case <-late.ran:
		t.Error("a session began after the end")
	default:
	}
}
