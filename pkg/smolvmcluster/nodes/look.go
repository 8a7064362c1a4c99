package nodes

import (
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// unanswered is how long a question, or a creation, may take before the status says that it is waited for.
const unanswered = 5 * time.Second

// look returns what is known of a machine.
func (s *session) look(machine string) state.Runtime {
	s.mu.Lock()
	r := state.Runtime{NodeUID: s.node.UID}
	if s.reason != "" && s.graceLeft() == 0 {
		r.Known, r.Reason, r.Message = true, s.reason, s.message
		s.shown = true // those who see this have to be notified when the runtime can be asked again
		s.mu.Unlock()
		return r
	}
	m, there := s.machines[machine]
	absent, heard, w := s.absent[machine], s.heard, s.works[machine]
	creating := w != nil && w.under && w.action == machinestep.Create
	if heard && !there && creating {
		// What was absent may be there at any moment: a SmolVM that is given up now would leave its machine behind.
		awaited(&r, "the machine is being created, and the runtime of node "+s.node.Name+" has not answered yet", w.began)
	}
	s.mu.Unlock()
	switch {
	case !heard, !there && creating:
		return r
	case there:
		r.Known, r.Machine = true, &m
		return r
	case absent:
		r.Known = true
		return r
	}
	return s.askFor(machine, r)
}

// awaited says in what is known of a machine that an answer is waited for, once that takes long.
func awaited(r *state.Runtime, message string, began time.Time) {
	if r.After = unanswered - time.Since(began); r.After <= 0 {
		r.After, r.Message = 0, message
	}
}

// askFor asks the runtime for a machine that it has not reported, unless it is being asked, or a step with the machine
// is under way.
func (s *session) askFor(machine string, r state.Runtime) state.Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, w := s.asks[machine], s.works[machine]
	switch rests := a != nil && time.Until(a.until) > 0; {
	case w != nil && w.under:
		return r // a pass follows when it ends
	case a != nil && a.reason != "" && (a.under || rests):
		r.Known, r.Reason, r.Message = true, a.reason, a.message
		if !a.under {
			r.After = time.Until(a.until)
		}
		return r
	case a != nil && a.under:
		awaited(&r, "the runtime of node "+s.node.Name+" has not answered yet whether it has the machine", a.began)
		return r
	case s.client == nil || s.life.Err() != nil:
		r.After = s.options.Times.First
		return r
	case a == nil:
		a = &work{action: ask}
		s.asks[machine] = a
	}
	s.begin(a, machine, Request{Action: ask})
	r.Known, r.Reason, r.Message = a.reason != "", a.reason, a.message
	return r
}

// drop forgets a machine, and ends what is under way with it.
func (s *session) drop(machine string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range []map[string]*work{s.works, s.asks} {
		if w := list[machine]; w != nil && w.under {
			w.cancel()
		}
		delete(list, machine)
	}
	delete(s.absent, machine)
	delete(s.runs, machine)
}
