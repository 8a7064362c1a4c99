package server

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// hub lists the machines repeatedly while there are watchers, once for all of them.
type hub struct {
	list   func(context.Context) ([]api.Machine, error)
	bounds limits
	// pokes makes the hub list at once.
	pokes chan struct{}

	mu       sync.Mutex
	watchers int
	stop     context.CancelFunc
	// begun counts the lists that have begun.
	begun uint64
	seen  view
	// news is closed when there is another view.
	news chan struct{}
}

// view is what a list has shown.
type view struct {
	// number is that of the list.
	number   uint64
	machines []api.Machine
	err      error
}

func newHub(list func(context.Context) ([]api.Machine, error), bounds limits) *hub {
	return &hub{list: list, bounds: bounds, pokes: make(chan struct{}, 1), news: make(chan struct{})}
}

// poke makes the hub list at once, since a machine may have changed.
func (h *hub) poke() {
	select {
	case h.pokes <- struct{}{}:
	default:
	}
}

// join adds a watcher, unless there are as many as there may be. Views of lists after the number show what was there when
// it joined.
func (h *hub) join() (number uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == h.bounds.watchers {
		return 0, false
	}
	if h.watchers++; h.watchers == 1 {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		go h.run(ctx)
	}
	h.poke()
	return h.begun, true
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers--; h.watchers == 0 {
		h.stop()
	}
}

func (h *hub) run(ctx context.Context) {
	ticker := time.NewTicker(h.bounds.poll)
	defer ticker.Stop()
	for {
		h.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-h.pokes:
		}
	}
}

func (h *hub) look(ctx context.Context) {
	h.mu.Lock()
	h.begun++
	number := h.begun
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, h.bounds.request)
	defer cancel()
	machines, err := h.list(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	// A hub that has stopped may still have a list under way.
	if number <= h.seen.number {
		return
	}
	h.seen = view{number: number, machines: completeAll(machines), err: err}
	close(h.news)
	h.news = make(chan struct{})
}

// next waits for the view of a list after a number.
func (h *hub) next(ctx context.Context, number uint64) (view, error) {
	for {
		h.mu.Lock()
		seen, news := h.seen, h.news
		h.mu.Unlock()
		if seen.number > number {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			return view{}, context.Cause(ctx)
		case <-news:
		}
	}
}

var keepaliveLine = []byte(`{"type":"` + string(api.WatchAlive) + `"}` + "\n")

// watchMachines answers with all machines as they are after the request came, and then with what changes.
func (s *server) watchMachines(w http.ResponseWriter, r *http.Request) error {
	number, ok := s.watch.join()
	if !ok {
		return api.Errorf(api.CodeUnavailable, "%d clients watch the machines, which is the most", s.limits.watchers)
	}
	defer s.watch.leave()
	seen, err := s.watch.next(r.Context(), number)
	if err == nil {
		err = seen.err
	}
	if err != nil {
		return err
	}
	lines, ctx := newStream(w, r, api.WatchContentType, keepaliveLine, s.limits.alive)
	defer lines.close()
	ctx, cancel := untilStop(ctx)
	defer cancel()
	watcher := newWatcher(seen.machines)
	events := []api.WatchEvent{{Type: api.WatchSnapshot, Machines: seen.machines}}
	for {
		if err := sendLines(lines, events); err != nil {
			// The client has gone, and the answer has begun.
			return nil
		}
		if seen, err = s.watch.next(ctx, seen.number); err != nil {
			// The client has gone, or the server stops.
			return nil
		}
		events = watcher.events(seen)
	}
}

func sendLines(lines *stream, events []api.WatchEvent) error {
	var part []byte
	for _, event := range events {
		line, err := json.Marshal(event)
		if err != nil {
			return err
		}
		part = append(append(part, line...), '\n')
	}
	if len(part) == 0 {
		return nil
	}
	return lines.send(part)
}

// watcher is what a client knows.
type watcher struct {
	machines map[string]api.Machine
	// trouble is the error that the client got; empty after a list without.
	trouble string
}

func newWatcher(machines []api.Machine) *watcher {
	w := &watcher{}
	w.remember(machines)
	return w
}

func (w *watcher) remember(machines []api.Machine) {
	w.machines = make(map[string]api.Machine, len(machines))
	for _, m := range machines {
		w.machines[m.Name] = m
	}
}

// events returns what a view has that the client does not know. After an error there is another snapshot.
func (w *watcher) events(seen view) []api.WatchEvent {
	before := w.trouble
	if seen.err != nil {
		told := api.ErrorOf(seen.err)
		if w.trouble = told.Message; w.trouble == before {
			return nil
		}
		return []api.WatchEvent{{Type: api.WatchError, Error: told}}
	}
	known := w.machines
	w.trouble = ""
	w.remember(seen.machines)
	if before != "" {
		return []api.WatchEvent{{Type: api.WatchSnapshot, Machines: seen.machines}}
	}
	var events []api.WatchEvent
	for _, m := range seen.machines {
		if old, ok := known[m.Name]; !ok || !reflect.DeepEqual(old, m) {
			events = append(events, api.WatchEvent{Type: api.WatchChanged, Machine: &m})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if _, ok := w.machines[name]; !ok {
			events = append(events, api.WatchEvent{Type: api.WatchDeleted, Name: name})
		}
	}
	return events
}
