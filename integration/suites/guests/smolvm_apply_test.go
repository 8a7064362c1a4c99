package guests_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	// comparedPort is the port of the machines that are compared.
	comparedPort = 18084
	// comparisons is how many pairs are compared.
	comparisons = 3
	// attemptTime is how long an attempt to reach the port may take.
	attemptTime = 2 * time.Second
)

// appliedBesideTold prints how long it takes from the creation of a SmolVM until its port answers, beside the time from
// POST create and start, to smolvm on the node itself. The node has the image. One machine follows the other, with the same
// sizes and the same port.
func appliedBesideTold(s *smolStage) {
	server, err := api.NewClient(fmt.Sprintf("unix:///proc/%d/root/run/smolvm/smolvm.sock", s.node.PID()), api.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer server.Close()
	cpus, memory, size := 1, int64(256), int64(1)
	for range comparisons {
		told := s.untilPort(func(ctx context.Context) error {
			_, err := server.Create(ctx, api.CreateRequest{
				Name: "told", Image: "web:1", CPUs: &cpus, MemoryMB: &memory, StorageGB: &size, OverlayGB: &size,
				Network: true, Ports: []api.Port{{Host: comparedPort, Guest: 80}},
			})
			if err == nil {
				_, err = server.Start(ctx, "told", api.StartRequest{})
			}
			return err
		})
		if err := server.Delete(s.t.Context(), "told"); err != nil {
			s.t.Fatal(err)
		}
		applied := s.untilPort(func(ctx context.Context) error { return s.lab.Client.Create(ctx, s.declared("applied", comparedPort)) })
		s.delete("applied")
		s.gone("applied")
		s.say(fmt.Sprintf("a port answers %.1f s after its machine was applied, and %.1f s after the requests to smolvm: ratio %.2f",
			applied.Seconds(), told.Seconds(), applied.Seconds()/told.Seconds()))
	}
}

// untilPort does something, and returns the time from its begin until the port answers. A port may accept a connection before
// the guest listens, so there is another attempt before one has failed.
func (s *smolStage) untilPort(do func(context.Context) error) (took time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), smolPatience)
	defer cancel()
	begin, answered, done := time.Now(), make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- do(ctx) }()
	var attempts sync.WaitGroup
	defer attempts.Wait()
	ask := func() {
		ctx, cancel := context.WithTimeout(ctx, attemptTime)
		defer cancel()
		if s.answersWithin(ctx, s.node, comparedPort) {
			select {
			case answered <- struct{}{}:
			default:
			}
		}
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for took == 0 || done != nil {
		select {
		case <-answered:
			if took == 0 { // other attempts are answered, too
				took = time.Since(begin)
			}
		case err := <-done:
			if err != nil {
				s.t.Fatal(err)
			}
			done = nil
		case <-ctx.Done():
			s.t.Fatalf("the port does not answer: %s", s.explain("applied"))
		case <-tick.C:
			if took == 0 {
				attempts.Go(ask)
			}
		}
	}
	return took
}
