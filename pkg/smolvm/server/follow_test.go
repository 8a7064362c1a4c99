package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func TestLogs(t *testing.T) {
	long := strings.Repeat("x", maxLogLine)
	console := "a\r\n{\"b\":1}\n" + long + "y\n\nend"
	zero, two := 0, 2
	for name, test := range map[string]struct {
		options api.LogsOptions
		tail    int
		want    string
	}{
		"lines are events, and long ones are split": {api.LogsOptions{}, api.MaxTail, "a\n{\"b\":1}\n" + long + "\ny\n\nend\n"},
		"the tail is passed on":                     {api.LogsOptions{Tail: &two}, 2, "a\n{\"b\":1}\n" + long + "\ny\n\nend\n"},
		"a tail of none is none":                    {api.LogsOptions{Tail: &zero}, 0, "a\n{\"b\":1}\n" + long + "\ny\n\nend\n"},
		"only JSON":                                 {api.LogsOptions{JSON: true}, api.MaxTail, "{\"b\":1}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := serve(t, &stub{logs: func(_ context.Context, tail int, _ bool, out io.Writer) error {
				if tail != test.tail {
					t.Errorf("the tail is %d", tail)
				}
				for rest := console; rest != ""; {
					part := rest[:min(len(rest), 1000)]
					rest = rest[len(part):]
					if _, err := io.WriteString(out, part); err != nil {
						return err
					}
				}
				return nil
			}}, nil)
			var got bytes.Buffer
			if err := c.Logs(t.Context(), "x", test.options, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("the logs differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueriesOfLogs(t *testing.T) {
	url, _ := serve(t, &stub{logs: func(context.Context, int, bool, io.Writer) error { return nil }}, nil)
	for query, want := range map[string]int{
		"": 200, "tail=10000": 200, "tail=10001": 400, "tail=-1": 400, "tail=": 400, "tail=x": 400, "tail=99999999999999999999": 400,
		"follow=true": 200, "follow=false": 200, "follow=1": 400, "format=json": 200, "format=raw": 200, "other=x": 200,
	} {
		answer, body := ask(t, http.MethodGet, url+"/api/v1/machines/x/logs?"+query, "", nil)
		if answer.StatusCode != want {
			t.Errorf("%s: %d %s", query, answer.StatusCode, body)
		}
	}
}

func TestFollowersAreBounded(t *testing.T) {
	machines := &stub{logs: func(ctx context.Context, _ int, _ bool, out io.Writer) error {
		if _, err := io.WriteString(out, "line\n"); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	_, c := serve(t, machines, nil)
	follow := func(ctx context.Context, name string) error {
		return c.Logs(ctx, name, api.LogsOptions{Follow: true}, writerFunc(func(p []byte) (int, error) { return len(p), nil }))
	}
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{}, usual.followers)
	var all sync.WaitGroup
	for range usual.followers {
		all.Go(func() {
			err := c.Logs(ctx, "x", api.LogsOptions{Follow: true}, writerFunc(func(p []byte) (int, error) { began <- struct{}{}; return len(p), nil }))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a follower ended with %v", err)
			}
		})
	}
	for range usual.followers {
		<-began
	}
	if err := follow(t.Context(), "x"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("the 17th follower got %v", err)
	}
	other, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer end()
	if err := follow(other, "y"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a follower of another machine got %v", err)
	}
	cancel()
	all.Wait()
	await(t, "a place for another follower", func() bool {
		again, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer end()
		return errors.Is(follow(again, "x"), context.DeadlineExceeded)
	})
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !reached(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there was no %s", what)
		}
	}
}

// world is a list of machines that a test changes.
type world struct {
	mu       sync.Mutex
	machines []api.Machine
	err      error
	lists    int
}

func (w *world) list(context.Context) ([]api.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	return append([]api.Machine{}, w.machines...), w.err
}

func (w *world) set(err error, machines ...api.Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines, w.err = machines, err
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

func describe(e api.WatchEvent) string {
	said := []string{string(e.Type)}
	for _, m := range e.Machines {
		said = append(said, m.Name+"="+string(m.State))
	}
	if e.Machine != nil {
		said = append(said, e.Machine.Name+"="+string(e.Machine.State))
	}
	if e.Error != nil {
		said = append(said, e.Error.Message)
	}
	return strings.Join(append(said, e.Name), " ")
}

func TestWatchTellsChanges(t *testing.T) {
	w := &world{}
	a, b := api.Machine{Name: "a", State: api.StateCreated}, api.Machine{Name: "b", State: api.StateRunning}
	running := a
	running.State = api.StateRunning
	w.set(nil, a)
	_, c := serve(t, &stub{list: w.list}, func(l *limits) { l.poll, l.alive = 5*time.Millisecond, time.Hour })
	steps := []struct {
		want string
		then func()
	}{
		{"snapshot a=created ", func() { w.set(nil, running) }},
		{"changed a=running ", func() { w.set(nil, running, b) }},
		{"changed b=running ", func() { w.set(nil, b) }},
		{"deleted a", func() { w.set(errors.New("no disk")) }},
		{"error no disk ", func() { w.set(nil, a) }},
		{"snapshot a=created ", func() { w.set(nil) }},
		{"deleted a", func() { w.set(nil, b) }},
	}
	done := errors.New("done")
	step := 0
	err := c.Watch(t.Context(), func(e api.WatchEvent) error {
		if got := describe(e); got != steps[step].want {
			t.Errorf("step %d: %q", step, got)
		}
		steps[step].then()
		if step++; step == len(steps) {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestWatchersShareOneList(t *testing.T) {
	w := &world{}
	url, c := serve(t, &stub{list: w.list}, func(l *limits) { l.poll, l.alive, l.watchers = time.Hour, 20*time.Millisecond, 5 })
	ctx, cancel := context.WithCancel(t.Context())
	alive := make(chan struct{}, 1000)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			_ = c.Watch(ctx, func(e api.WatchEvent) error {
				if e.Type == api.WatchAlive {
					alive <- struct{}{}
				}
				return nil
			})
		})
	}
	for range 20 {
		<-alive
	}
	// Each has had its own snapshot, and since then nothing has been listed.
	if lists := w.count(); lists > 6 {
		t.Errorf("five watchers took %d lists", lists)
	}
	if answer, body := ask(t, http.MethodGet, url+"/api/v1/machines?watch=true", "", nil); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the sixth watcher got %d %s", answer.StatusCode, body)
	}
	cancel()
	all.Wait()
	await(t, "end of listing", func() bool {
		before := w.count()
		time.Sleep(20 * time.Millisecond)
		return w.count() == before
	})
}

// TestSnapshotIsNewerThanTheRequest: what a client has created before it watches is in the snapshot, though another
// watcher has made the hub list before.
func TestSnapshotIsNewerThanTheRequest(t *testing.T) {
	w := &world{}
	_, c := serve(t, &stub{list: w.list}, func(l *limits) { l.poll = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan struct{}, 10)
	go func() { _ = c.Watch(ctx, func(api.WatchEvent) error { first <- struct{}{}; return nil }) }()
	<-first
	for i := range 20 {
		name := fmt.Sprintf("m%d", i)
		w.set(nil, api.Machine{Name: name})
		seen := errors.New("seen")
		err := c.Watch(t.Context(), func(e api.WatchEvent) error {
			if len(e.Machines) != 1 || e.Machines[0].Name != name {
				t.Errorf("the snapshot is %+v and %s is there", e, name)
			}
			return seen
		})
		if !errors.Is(err, seen) {
			t.Fatal(err)
		}
	}
}
