package chaos_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// interrupted ends at the first signal. It belongs to the whole process: tests that are still to come end, too.
var interrupted = context.Background()

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(interrupted, os.Interrupt, syscall.SIGTERM)
	interrupted = ctx
	code := m.Run()
	stop()
	os.Exit(code)
}

// untilInterrupted returns a context that ends with the test, or at the first signal; then the test cleans up. A test that
// begins after the signal ends at once.
func untilInterrupted(t *testing.T) context.Context {
	t.Helper()
	if interrupted.Err() != nil {
		t.Fatal(context.Cause(interrupted))
	}
	ctx, end := context.WithCancelCause(t.Context())
	release := context.AfterFunc(interrupted, func() { end(context.Cause(interrupted)) })
	t.Cleanup(func() {
		release()
		end(nil)
	})
	return ctx
}
