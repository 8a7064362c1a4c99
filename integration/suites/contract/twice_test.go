package contract_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// operation is a request that changes something.
type operation struct {
	// given prepares the machine. Nil: it is created.
	given func(t *testing.T, target Target, name string)
	do    func(ctx context.Context, c *api.Client, name string) error
	// again are codes that a second delivery may be answered with, besides success.
	again []api.Code
	// effect checks that there was one.
	effect func(t *testing.T, target Target, name string)
	// starts says that the target must be able to start machines.
	starts bool
}

func nothing(*testing.T, Target, string) {}

func started(t *testing.T, target Target, name string) {
	t.Helper()
	created(t, target, name)
	if _, err := target.client(t).Start(t.Context(), name, api.StartRequest{}); err != nil {
		t.Fatal(err)
	}
}

func created(t *testing.T, target Target, name string) {
	t.Helper()
	if err := createNamed(t.Context(), target.client(t), target, name); err != nil {
		t.Fatal(err)
	}
}

func createNamed(ctx context.Context, c *api.Client, target Target, name string) error {
	size, source := int64(2), image
	if target.Boots {
		source = target.Shell
	}
	_, err := c.Create(ctx, api.CreateRequest{Name: name, Image: source, StorageGB: &size, OverlayGB: &size})
	return err
}

func inState(want ...api.State) func(t *testing.T, target Target, name string) {
	return func(t *testing.T, target Target, name string) {
		t.Helper()
		got, err := target.client(t).Get(t.Context(), name)
		if err != nil || !slices.Contains(want, got.State) {
			t.Errorf("the machine is %q and not %q: %v", got.State, want, err)
		}
	}
}

func operations(target Target) map[string]operation {
	return map[string]operation{
		"create": {
			given: nothing, again: []api.Code{api.CodeConflict},
			do: func(ctx context.Context, c *api.Client, name string) error { return createNamed(ctx, c, target, name) },
			effect: func(t *testing.T, target Target, name string) {
				t.Helper()
				list, err := target.client(t).List(t.Context())
				found := slices.DeleteFunc(list, func(m api.Machine) bool { return m.Name != name })
				if err != nil || len(found) != 1 || found[0].State != api.StateCreated || found[0].StorageGB != 2 {
					t.Errorf("there are %+v: %v", found, err)
				}
			},
		},
		"start": {
			do: func(ctx context.Context, c *api.Client, name string) error {
				_, err := c.Start(ctx, name, api.StartRequest{})
				return err
			},
			effect: inState(api.StateRunning), starts: true,
		},
		"stop": {
			given:  started,
			do:     func(ctx context.Context, c *api.Client, name string) error { _, err := c.Stop(ctx, name); return err },
			effect: inState(api.StateStopped), starts: true,
		},
		"drain": {
			given: started, do: func(ctx context.Context, c *api.Client, _ string) error { return c.Drain(ctx) },
			effect: inState(api.StateStopped), starts: true,
		},
		"resize": {
			do: func(ctx context.Context, c *api.Client, name string) error {
				size := int64(3)
				_, err := c.Resize(ctx, name, api.ResizeRequest{StorageGB: &size})
				return err
			},
			effect: func(t *testing.T, target Target, name string) {
				t.Helper()
				got, err := target.client(t).Get(t.Context(), name)
				if err != nil || got.StorageGB != 3 || got.OverlayGB != 2 {
					t.Errorf("the disks have %d and %d GiB: %v", got.StorageGB, got.OverlayGB, err)
				}
			},
		},
		"delete": {
			do: func(ctx context.Context, c *api.Client, name string) error { return c.Delete(ctx, name) }, again: []api.Code{api.CodeNotFound},
			effect: func(t *testing.T, target Target, name string) { t.Helper(); gone(t, target, name) },
		},
		"delete of what runs": {
			given: started, starts: true,
			do: func(ctx context.Context, c *api.Client, name string) error { return c.Delete(ctx, name) }, again: []api.Code{api.CodeNotFound},
			effect: func(t *testing.T, target Target, name string) { t.Helper(); gone(t, target, name) },
		},
	}
}

// deliveries deliver an operation more than once.
var deliveries = map[string]func(t *testing.T, target Target, name string, o operation){
	"twice": func(t *testing.T, target Target, name string, o operation) {
		t.Helper()
		c := target.client(t)
		if err := o.do(t.Context(), c, name); err != nil {
			t.Fatal(err)
		}
		o.repeat(t, c, name)
	},
	"with its answer lost": func(t *testing.T, target Target, name string, o operation) {
		t.Helper()
		lossy := target.http(t)
		lossy.Transport = losing{lossy.Transport}
		c, err := api.NewClient(target.Address, api.Options{HTTP: lossy})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.do(t.Context(), c, name); !errors.Is(err, errLost) {
			t.Fatalf("the answer is not lost: %v", err)
		}
		o.repeat(t, target.client(t), name)
	},
	"by a client that hangs up at once": func(t *testing.T, target Target, name string, o operation) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_ = o.do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }}), target.client(t), name)
		// What it has left may still be under way.
		poll.Eventually(t, time.Minute, 20*time.Millisecond, func() error {
			err := o.do(t.Context(), target.client(t), name)
			if slices.Contains(o.again, api.CodeOf(err)) {
				return nil
			}
			return err
		})
	},
	"four times at once": func(t *testing.T, target Target, name string, o operation) {
		t.Helper()
		c := target.client(t)
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = o.do(t.Context(), c, name) })
		}
		all.Wait()
		if !slices.Contains(errs, nil) {
			t.Errorf("none was done: %v", errs)
		}
		for _, err := range errs {
			if err != nil && !slices.Contains(o.again, api.CodeOf(err)) {
				t.Error(err)
			}
		}
	},
}

func (o operation) repeat(t *testing.T, c *api.Client, name string) {
	t.Helper()
	if err := o.do(t.Context(), c, name); err != nil && !slices.Contains(o.again, api.CodeOf(err)) {
		t.Errorf("the second delivery got %v", err)
	}
}

var errLost = errors.New("the answer is lost")

// losing delivers requests and loses the answers.
type losing struct{ next http.RoundTripper }

func (l losing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return nil, errors.Join(errLost, answer.Body.Close())
}

// TestOperationsHaveOneEffect: however often an operation is delivered.
func TestOperationsHaveOneEffect(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		for verb, o := range operations(target) {
			if o.starts && !target.Starts {
				continue
			}
			for how, deliver := range deliveries {
				t.Run(verb+" "+how, func(t *testing.T) {
					name := target.newName(t)
					prepare := o.given
					if prepare == nil {
						prepare = created
					}
					prepare(t, target, name)
					deliver(t, target, name, o)
					o.effect(t, target, name)
				})
			}
		}
	})
}

// TestWatch: a watch begins with all machines and tells changes; a target that cannot watch says so.
func TestWatch(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		c := target.client(t)
		first, second := target.machine(t), target.newName(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := errors.New("done")
		var told []string
		err := c.Watch(ctx, func(e api.WatchEvent) error {
			switch {
			case e.Type == api.WatchSnapshot && slices.ContainsFunc(e.Machines, func(m api.Machine) bool { return m.Name == first }):
				told = append(told, "snapshot")
				created(t, target, second)
			case e.Type == api.WatchChanged && e.Machine.Name == second:
				told = append(told, "changed")
				return c.Delete(ctx, second)
			case e.Type == api.WatchDeleted && e.Name == second:
				told = append(told, "deleted")
				return done
			}
			return nil
		})
		if target.Kind == kindSmolvm {
			if api.CodeOf(err) != api.CodeUnsupported {
				t.Errorf("smolvm has no watch, and the client said %v", err)
			}
			return
		}
		if !errors.Is(err, done) || !slices.Equal(told, []string{"snapshot", "changed", "deleted"}) {
			t.Errorf("%v: %v", told, err)
		}
	})
}

// TestRunningMachinesAreNotResized is for targets that start machines.
func TestRunningMachinesAreNotResized(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		if !target.Starts {
			return
		}
		name := target.newName(t)
		started(t, target, name)
		size := int64(3)
		_, err := target.client(t).Resize(t.Context(), name, api.ResizeRequest{StorageGB: &size})
		if api.CodeOf(err) != api.CodeConflict {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestHealthCountsMachines is exact on a target that no other test uses at the time.
func TestHealthCountsMachines(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		target.machine(t)
		list, err := target.client(t).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		health, err := target.client(t).Health(t.Context())
		if err != nil || health.Machines.Total != len(list) || len(list) == 0 {
			t.Errorf("%d machines are listed, and the health has %+v: %v", len(list), health.Machines, err)
		}
	})
}
