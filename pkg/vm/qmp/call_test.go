package qmp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// echo is a command whose reply contains its argument.
type echo struct {
	Number int `json:"number"`
}

func say(ctx context.Context, c *qmp.Client, number int) (int, error) {
	var answer echo
	err := c.Execute(ctx, "echo", echo{number}, &answer)
	return answer.Number, err
}

func TestRepliesInAnyOrderWithEventsBetween(t *testing.T) {
	const calls = 1000
	c := connect(t, func(p *peer) {
		// The more are held back, the more are out of order; holding back all of them would fill the client's writer.
		var held []request
		for answered := 0; answered < calls; answered++ {
			for len(held) < min(32, calls-answered) {
				r, ok := p.next()
				if !ok {
					return
				}
				held = append(held, r)
			}
			i := rand.IntN(len(held))
			p.event("NOISE", "{}")
			p.reply(held[i], string(held[i].Arguments))
			held = append(held[:i], held[i+1:]...)
		}
		p.next()
	})
	var waiting sync.WaitGroup
	for number := range calls {
		waiting.Go(func() {
			if got, err := say(t.Context(), c, number); err != nil || got != number {
				t.Errorf("call %d is answered by %d, %v", number, got, err)
			}
		})
	}
	waiting.Wait()
}

func TestRefusalIsACommandError(t *testing.T) {
	c := connect(t, each(func(p *peer, r request) {
		p.say(`{"id": %s, "error": {"class": "DeviceNotFound", "desc": "Device 'x' not found"}}`, r.ID)
	}))
	err := c.RemoveMedium(t.Context(), "x")
	want := &qmp.CommandError{Command: "blockdev-remove-medium", Class: qmp.ClassDeviceNotFound, Description: "Device 'x' not found"}
	var got *qmp.CommandError
	if !errors.As(err, &got) || !cmp.Equal(want, got) {
		t.Errorf("it returns %v; want %v", err, want)
	}
}

func TestEndOfTheConnectionFailsAllCalls(t *testing.T) {
	const calls = 20
	for name, test := range map[string]struct {
		end     func(*peer, *qmp.Client)
		garbage bool
	}{
		"QEMU hangs up":           {func(p *peer, _ *qmp.Client) { p.conn.Close() }, false},
		"QEMU dies in the middle": {func(p *peer, _ *qmp.Client) { fmt.Fprint(p.conn, `{"return":`); p.conn.Close() }, false},
		"the client is closed":    {func(_ *peer, c *qmp.Client) { c.Close() }, false},
		"garbage comes":           {func(p *peer, _ *qmp.Client) { p.say("garbage") }, true},
		"a reply without id comes": {func(p *peer, _ *qmp.Client) {
			p.say(`{"error": {"class": "GenericError", "desc": "JSON parse error"}}`)
		}, true},
		"a reply comes that none awaits": {func(p *peer, _ *qmp.Client) { p.say(`{"return": {}, "id": 4711}`) }, true},
		"an endless line comes":          {func(p *peer, _ *qmp.Client) { fmt.Fprint(p.conn, strings.Repeat(" x", 9<<20)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			clients := make(chan *qmp.Client, 1)
			c := connect(t, func(p *peer) {
				for range calls {
					p.next()
				}
				test.end(p, <-clients)
				_, _ = io.Copy(io.Discard, p.conn)
			})
			clients <- c
			var waiting sync.WaitGroup
			for number := range calls {
				waiting.Go(func() {
					var garbage *qmp.ProtocolError
					_, err := say(t.Context(), c, number)
					if !errors.Is(err, qmp.ErrClosed) || errors.As(err, &garbage) != test.garbage {
						t.Errorf("a pending call returns %v", err)
					}
				})
			}
			waiting.Wait()
			<-c.Done()
			if _, err := say(t.Context(), c, 0); !errors.Is(err, qmp.ErrClosed) || !errors.Is(c.Err(), qmp.ErrClosed) {
				t.Errorf("a later call returns %v, Err %v", err, c.Err())
			}
		})
	}
}

func TestCancelledCallLeavesTheClientUsable(t *testing.T) {
	c := connect(t, func(p *peer) {
		cancelled, _ := p.next()
		second, _ := p.next()
		p.reply(cancelled, `{"number": -1}`)
		p.reply(second, string(second.Arguments))
		p.next()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := say(ctx, c, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the cancelled call returns %v", err)
	}
	if got, err := say(t.Context(), c, 2); err != nil || got != 2 {
		t.Errorf("the next call returns %d, %v", got, err)
	}
}

func TestNoCallHangsOnAQEMUThatDoesNotRead(t *testing.T) {
	released := make(chan struct{})
	c := connect(t, func(*peer) { <-released })
	defer close(released)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var waiting sync.WaitGroup
	for range 8 {
		waiting.Go(func() {
			err := c.Execute(ctx, "echo", strings.Repeat("x", 1<<20), nil)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call returns %v", err)
			}
		})
	}
	waiting.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeSentIsAnErrorAndNothingElse(t *testing.T) {
	c := connect(t, each(func(p *peer, r request) { p.reply(r, `"text"`) }))
	if err := c.Execute(t.Context(), "echo", make(chan int), nil); err == nil {
		t.Error("a channel is sent as JSON")
	}
	for name, command := range map[string]string{
		"no JSON":             `{"execute":`,
		"no object":           `[]`,
		"null":                `null`,
		"nothing to execute":  `{"arguments": {}}`,
		"execute is a number": `{"execute": 1}`,
		"a byte beyond UTF-8": "{\"execute\": \"echo\", \"arguments\": \"\xff\"}",
	} {
		if answer, err := c.Raw(t.Context(), []byte(command)); err == nil {
			t.Errorf("%s: it is answered by %s", name, answer)
		}
	}
	var number int
	if err := c.Execute(t.Context(), "echo", nil, &number); err == nil {
		t.Error("a text is decoded as a number")
	}
	if err := c.Execute(t.Context(), "echo", nil, nil); err != nil {
		t.Errorf("the client is no longer usable: %v", err)
	}
}

func TestRawPassesThroughBothWays(t *testing.T) {
	c := connect(t, each(func(p *peer, r request) {
		if r.Execute == "echo" {
			p.reply(r, string(r.Arguments))
		} else {
			p.refuse(r, "no")
		}
	}))
	for name, test := range map[string]struct {
		command, reply string
		refused        bool
	}{
		"no id":               {`{"execute": "echo", "arguments": {"a": 12345678901234567890}}`, `{"return":{"a":12345678901234567890}}`, false},
		"an id of the caller": {`{"execute": "echo", "arguments": null, "id": ["x", 1]}`, `{"id":["x",1],"return":null}`, false},
		"a refusal":           {`{"execute": "stop", "id": 7}`, `{"error":{"class":"GenericError","desc":"no"},"id":7}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := c.Raw(t.Context(), []byte(test.command))
			var refusal *qmp.CommandError
			if (err != nil) != test.refused || errors.As(err, &refusal) != test.refused {
				t.Errorf("it returns the error %v", err)
			}
			if diff := cmp.Diff(test.reply, string(answer)); diff != "" {
				t.Errorf("it answers otherwise (-want +got):\n%s", diff)
			}
		})
	}
}
