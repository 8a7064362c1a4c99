package qmp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// flood sends n numbered events at the first command and answers commands.
func flood(n int) func(*peer) {
	return func(p *peer) {
		sent := false
		each(func(p *peer, r request) {
			for i := 0; !sent && i < n; i++ {
				p.event("COUNT", fmt.Sprintf(`{"number": %d}`, i))
			}
			sent = true
			p.reply(r, `{"running": true, "status": "running"}`)
		})(p)
	}
}

// status makes a round trip: what QEMU sent before has arrived.
func status(t *testing.T, c *qmp.Client) {
	t.Helper()
	got, err := c.Status(t.Context())
	if err != nil || got != (qmp.Status{Running: true, Status: "running"}) {
		t.Fatalf("the status is %+v, %v", got, err)
	}
}

func TestSlowSubscriberDelaysNoOtherAndLosesNothing(t *testing.T) {
	const events = 10000
	c := connect(t, flood(events))
	slow, other := c.Subscribe("COUNT"), c.Subscribe("STOP")
	status(t, c)
	for want := range events {
		var got echo
		if err := (<-slow.Events()).Decode(&got); err != nil || got.Number != want {
			t.Fatalf("event %d is %+v, %v", want, got, err)
		}
	}
	select {
	case e := <-other.Events():
		t.Errorf("a subscriber of other events receives %v", e)
	default:
	}
}

// TestEventsThatWaitAreBounded: a guest that makes QEMU send endless events fills no memory.
func TestEventsThatWaitAreBounded(t *testing.T) {
	const queued, events = 1 << 14, 3 << 14
	c := connect(t, func(p *peer) {
		r, _ := p.next()
		for range events {
			p.event("COUNT", "{}")
		}
		p.reply(r, `{"running": true, "status": "running"}`)
	})
	s := c.Subscribe()
	status(t, c)
	received := 0
	for range s.Events() {
		received++
	}
	// Up to a queue's worth of events may have left the queue already.
	if received < queued || received > 2*queued+1 {
		t.Errorf("of %d events %d are received; %d may wait", events, received, queued)
	}
}

func TestEventHasNameDataAndTime(t *testing.T) {
	c := connect(t, func(p *peer) {
		r, _ := p.next()
		p.event("RESET", `{"guest": false, "reason": "host-qmp-system-reset"}`)
		p.say(`{"timestamp": {"seconds": -1, "microseconds": -1}, "event": "STOP"}`)
		p.reply(r, "{}")
		p.next()
	})
	s := c.Subscribe()
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	reset, stop := <-s.Events(), <-s.Events()
	var data qmp.Shutdown
	if err := reset.Decode(&data); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(qmp.Shutdown{Reason: "host-qmp-system-reset"}, data); diff != "" {
		t.Errorf("the data differs (-want +got):\n%s", diff)
	}
	if reset.Name != qmp.EventReset || !reset.Time.Equal(time.UnixMilli(1700000000250)) {
		t.Errorf("the event is %s at %s", reset.Name, reset.Time)
	}
	if stop.Name != "STOP" || !stop.Time.IsZero() || stop.Decode(&data) == nil {
		t.Errorf("the event without time and data is %+v", stop)
	}
}

func TestSubscriptionRunsOutWithTheConnection(t *testing.T) {
	c := connect(t, func(p *peer) {
		p.next()
		p.event("SHUTDOWN", "{}")
		p.event("STOP", "{}")
	})
	s := c.Subscribe()
	if err := c.Quit(t.Context()); err != nil {
		t.Errorf("QEMU's end is no success of Quit: %v", err)
	}
	<-c.Done()
	var names []string
	for e := range s.Events() {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{"SHUTDOWN", "STOP"}, names); diff != "" {
		t.Errorf("the last events differ (-want +got):\n%s", diff)
	}
	if e, open := <-c.Subscribe().Events(); open {
		t.Errorf("a subscription after the end receives %v", e)
	}
	if err := c.Quit(t.Context()); err == nil {
		t.Error("Quit on a connection that has ended is a success")
	}
}

func TestClosedSubscriptionReceivesNoMore(t *testing.T) {
	c := connect(t, flood(100))
	closed, open := c.Subscribe(), c.Subscribe()
	status(t, c)
	<-closed.Events()
	closed.Close()
	closed.Close()
	await(t, "the closed subscription's end", func() bool { _, more := <-closed.Events(); return !more })
	for range 100 {
		<-open.Events()
	}
}
