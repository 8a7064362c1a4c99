package nodes

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// ask is the step that asks whether there is a machine.
const ask machinestep.Action = "Ask"

// Request is a step with a machine.
type Request struct {
	Action machinestep.Action
	// Namespace is that of the SmolVM: one does not get all the starts of a node.
	Namespace string
	// Generation is that of the spec. A step that has failed is tried at once for another one.
	Generation int64
	// Create and Resize are the requests of those steps.
	Create api.CreateRequest
	Resize api.ResizeRequest
	// Credentials are called at each attempt of a Start, for pulling the image; nil for none. What they return is sent to the
	// runtime, and neither kept nor told. lacks says in words without credentials what is missing of them; it becomes part of
	// the message if the image cannot be pulled.
	Credentials func(ctx context.Context) (auth *api.RegistryAuth, lacks string)
}

// long reports whether a step may take minutes: a start pulls an image, and the runtime reads the whole file that a machine is
// made of.
func (r Request) long() bool {
	return r.Action == machinestep.Start || r.Action == machinestep.Create && r.Create.From != ""
}

// work is a step with a machine, of which each has one at a time.
type work struct {
	action     machinestep.Action
	generation int64
	cancel     context.CancelFunc
	under      bool
	// long is that of the request.
	long bool
	// began is when the last attempt began.
	began time.Time
	// failures are how many attempts in a row have failed; the rest is of the last one.
	failures        int
	reason, message string
	until           time.Time
}

// do takes a step, unless one is under way, or has failed and is to be tried again later.
func (s *session) do(machine string, r Request) (progress state.Progress, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.works[machine]
	same := w != nil && w.action == r.Action && w.generation == r.Generation
	if r.Action == machinestep.Nothing {
		s.halt(w)
		return progress, false
	}
	if w != nil && w.under {
		if r.Action == machinestep.Stop || r.Action == machinestep.Delete {
			s.halt(w)
		}
		if same {
			progress.Reason, progress.Message = w.reason, w.message
		}
		return progress, false
	}
	if wait := s.restIn(machine, r); wait > 0 {
		why := rests[r.Action]
		return state.Progress{Reason: why.reason, Message: why.message, After: wait}, false
	}
	if same && time.Until(w.until) > 0 {
		return state.Progress{Reason: w.reason, Message: w.message, After: time.Until(w.until)}, false
	}
	if s.client == nil || s.life.Err() != nil {
		return state.Progress{After: s.options.Times.First}, false
	}
	if !same {
		w = &work{action: r.Action, generation: r.Generation}
		s.works[machine] = w
	}
	s.begin(w, machine, r)
	return state.Progress{Reason: w.reason, Message: w.message}, w.failures == 0
}

// begin begins an attempt. mu is held.
func (s *session) begin(w *work, machine string, r Request) {
	ctx, cancel := context.WithCancel(s.life)
	w.cancel, w.under, w.long, w.began = cancel, true, r.long(), time.Now()
	go s.work(ctx, s.client, w, machine, r)
}

// halt ends a long step that is under way. It may take minutes, which a user does not wait for who no longer wants the machine
// to run.
func (*session) halt(w *work) {
	if w != nil && w.under && w.long {
		w.cancel()
	}
}

// run is how often a step was taken with success for a generation of the spec, and when it was last.
type run struct {
	action     machinestep.Action
	generation int64
	times      int
	last       time.Time
}

// rests say why a step that had succeeded is to be taken again, and waits.
var rests = map[machinestep.Action]struct{ reason, message string }{
	machinestep.Start:  {v1alpha1.ReasonRestartBackOff, "the machine ended soon after its start; it is restarted after a pause"},
	machinestep.Stop:   {v1alpha1.ReasonNoEffect, "the runtime has confirmed the stop, but the machine still runs; the operator tries again after a pause"},
	machinestep.Resize: {v1alpha1.ReasonNoEffect, "the runtime has confirmed the resize, but the disks have their former size; the operator tries again after a pause"},
}

// restIn returns for how long a step is not taken again that was taken, and is due again soon after that. mu is
// held.
func (s *session) restIn(machine string, r Request) time.Duration {
	before, ok := s.runs[machine]
	if _, rested := rests[r.Action]; !rested || !ok || before.action != r.Action || before.generation != r.Generation || time.Since(before.last) > lastingRun {
		return 0
	}
	return max(0, s.options.Times.pause(before.times)-time.Since(before.last))
}

// lastingRun is how long a machine runs after which it is started again at once.
const lastingRun = 10 * time.Minute

// ran remembers that a step was taken. mu is held.
func (s *session) ran(machine string, r Request) {
	before := s.runs[machine]
	if before.action != r.Action || before.generation != r.Generation || time.Since(before.last) > lastingRun {
		before = run{action: r.Action, generation: r.Generation}
	}
	before.times++
	before.last = time.Now()
	s.runs[machine] = before
}

// work takes a step, and remembers what became of it.
func (s *session) work(ctx context.Context, client *api.Client, w *work, machine string, r Request) {
	defer w.cancel()
	got, err := s.inTurn(ctx, client, machine, r)
	if s.life.Err() != nil {
		return // another session, if any, takes the step again
	}
	cancelled := ctx.Err() != nil
	s.mu.Lock()
	w.under = false
	list := s.works
	if r.Action == ask {
		list = s.asks
	}
	// What was dropped meanwhile counts no longer: another machine of the name is asked for again.
	if list[machine] == w {
		if err = s.learn(machine, r, got, err); err == nil || cancelled {
			delete(list, machine)
		} else {
			w.failures++
			w.reason, w.message = s.node.reasonOf(err)
			w.until = time.Now().Add(s.options.Times.pause(w.failures))
		}
	}
	s.mu.Unlock()
	s.options.Changed(s.node.Name, machine)
}

// inTurn takes a step once there is a slot.
func (s *session) inTurn(ctx context.Context, client *api.Client, machine string, r Request) (*api.Machine, error) {
	for _, slots := range s.slotsOf(r) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	began := time.Now()
	m, err := s.act(ctx, client, machine, r)
	if s.options.Asked != nil {
		s.options.Asked(string(r.Action), s.resultOf(ctx, err), time.Since(began))
	}
	return m, err
}

// resultOf returns what became of a request. A runtime chooses codes, and there are no others than those of reasons.
func (s *session) resultOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return ResultOK
	case ctx.Err() != nil:
		return ResultCancelled
	}
	reason, _ := s.node.reasonOf(err)
	return reason
}

// slotsOf returns where a step needs a slot, in the order in which it gets them. Each kind has its own slots, and one
// namespace does not get all of them: a guest decides how long its machine takes to stop. Questions, which guests cannot delay,
// have the slots of no namespace.
func (s *session) slotsOf(r Request) []chan struct{} {
	if r.Action == ask {
		return []chan struct{}{s.slots}
	}
	all, most := s.slots, stepsPerNamespace
	if r.long() {
		all, most = s.starts, startsPerNamespace
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := share{namespace: r.Namespace, long: r.long()}
	own := s.shares[of]
	if own == nil {
		own = make(chan struct{}, most)
		s.shares[of] = own
	}
	return []chan struct{}{own, all}
}

// learn remembers what a step says of a machine, and returns its error if it has failed. mu is held.
func (s *session) learn(machine string, r Request, got *api.Machine, err error) error {
	switch {
	case err == nil && got != nil:
		if err := s.put(*got); err != nil {
			return err
		}
		if _, rested := rests[r.Action]; rested {
			s.ran(machine, r)
		}
		delete(s.absent, machine)
	case err == nil:
		s.remove(machine)
		s.absent[machine] = true
	case api.IsNotFound(err):
		// It is gone meanwhile. Whether that is so is asked before anything follows from it.
		s.remove(machine)
		return nil
	case r.Action == machinestep.Create:
		// An answer that was lost, and some that were not, may be those of a machine that is there now.
		delete(s.absent, machine)
	}
	return err
}

// pause returns the pause after a number of failures.
func (t Times) pause(failures int) time.Duration {
	return min(t.First<<min(failures-1, 16), t.Last)
}

// act makes the request of a step. It returns the machine as it is then; nil if there is none.
func (s *session) act(ctx context.Context, client *api.Client, machine string, r Request) (*api.Machine, error) {
	t := s.options.Times
	limit := t.Act
	switch {
	case r.Action == ask:
		limit = t.Get
	case r.long():
		limit = t.Start
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var m api.Machine
	var err error
	switch r.Action {
	case ask:
		if m, err = client.Get(ctx, machine); api.IsNotFound(err) {
			return nil, nil
		}
	case machinestep.Create:
		m, err = create(ctx, client, r.Create)
	case machinestep.Start:
		m, err = startWith(ctx, client, machine, r.Credentials)
	case machinestep.Stop:
		m, err = client.Stop(ctx, machine)
	case machinestep.Resize:
		m, err = client.Resize(ctx, machine, r.Resize)
	case machinestep.Delete:
		if err = client.Delete(ctx, machine); err == nil || api.IsNotFound(err) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	// What is remembered is of this machine, whatever name the runtime answers with.
	m.Name = machine
	return &m, nil
}

// create makes a machine. smolvm refuses a request that it has answered before, whose answer was lost.
func create(ctx context.Context, client *api.Client, r api.CreateRequest) (api.Machine, error) {
	m, err := client.Create(ctx, r)
	if api.CodeOf(err) != api.CodeConflict {
		return m, err
	}
	there, getErr := client.Get(ctx, r.Name)
	if getErr != nil || there.Owner != nil && r.Owner != nil && there.Owner.UID != r.Owner.UID {
		return m, err
	}
	return there, nil
}

// startWith starts a machine with credentials for its image.
func startWith(ctx context.Context, client *api.Client, machine string, credentials func(context.Context) (*api.RegistryAuth, string)) (api.Machine, error) {
	var request api.StartRequest
	var lacks string
	if credentials != nil {
		request.RegistryAuth, lacks = credentials(ctx)
	}
	m, err := start(ctx, client, machine, request)
	if lacks != "" && api.CodeOf(err) == api.CodeImagePullFailed {
		told := api.ErrorOf(err)
		// What is missing comes first: the words of registries may be long, and are cut.
		told.Message = lacks + "; " + told.Message
		err = told
	}
	return m, err
}

// start starts a machine. smolvm before 1.14 may refuse to start a machine that it has stopped, and starts it for a
// command.
func start(ctx context.Context, client *api.Client, machine string, request api.StartRequest) (api.Machine, error) {
	m, err := client.Start(ctx, machine, request)
	if err == nil || api.ErrorOf(err).Status() != http.StatusInternalServerError || !strings.Contains(err.Error(), "already starting or running") {
		return m, err
	}
	if _, err := client.Exec(ctx, machine, api.ExecRequest{Command: []string{"true"}}); err != nil {
		return m, err
	}
	return client.Get(ctx, machine)
}
