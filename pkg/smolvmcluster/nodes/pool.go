// Package nodes asks the runtimes of nodes. It keeps one connection to each, on which the runtime reports changes of its
// machines, and carries out steps with machines beside the passes that decide on them.
//
// A runtime is no more trusted than its node. What it says reaches the SmolVMs that have their machines there, and no
// others; its answers are bounded in size, number and rate; and a node that hangs costs the others nothing, since each has
// its own connections and goroutines.
package nodes

import (
	"context"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/sessions"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// Options are how runtimes are asked.
type Options struct {
	// Token returns the bearer token of a request. Nil: none.
	Token func() (string, error)
	// Roots returns the authorities that sign certificates of runtimes. Nil: only the certificate of the SmolVMNode counts.
	Roots func() (*x509.CertPool, error)
	// Wrap wraps the transport of requests, for example by a fence. Nil: nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Changed is called when something else is known of a machine, or with an empty name, of a node. It must not block.
	Changed func(node, machine string)
	// Asked is called after each request of a step, with its action, such as Create, or Ask for whether a machine is there; with
	// what became of it: ResultOK, ResultCancelled, or the reason that conditions have; and with the time that it took. Nil:
	// nothing. It must not block.
	Asked func(action, result string, took time.Duration)
	// Times are the pauses and limits; the zero value has those of Defaults. Tests set shorter ones.
	Times Times
}

// Results of requests besides the reasons of failures.
const (
	// ResultOK means that the step was taken, or the question answered.
	ResultOK = "ok"
	// ResultCancelled means that the controller no longer wanted it, and says nothing about the runtime.
	ResultCancelled = "Cancelled"
)

// Times are pauses and limits of time.
type Times struct {
	// First and Last are pauses between two attempts to connect, and of a step that fails.
	First, Last time.Duration
	// Silence is how long a runtime may take to say something on a new connection.
	Silence time.Duration
	// Grace is how long what a runtime said counts after its connection was lost, as when its pod is replaced.
	Grace time.Duration
	// Poll is how often a runtime is asked that cannot report changes.
	Poll time.Duration
	// Get is how long a question may take, Act a step, and Start one that may pull an image or read a whole file.
	Get, Act, Start time.Duration
}

// Defaults are the Times of the controller. The server gives up a request after 300 seconds.
var Defaults = Times{
	First: time.Second, Last: time.Minute, Silence: 15 * time.Second, Grace: 10 * time.Second, Poll: 10 * time.Second,
	Get: 15 * time.Second, Act: 2 * time.Minute, Start: 330 * time.Second,
}

// Pool asks the runtimes of all nodes. It is a manager.Runnable, and asks none before it is started. Its methods are safe
// for concurrent use and, except Start, do not wait.
type Pool struct {
	options  Options
	sessions *sessions.Sessions[*session]
}

// New returns a Pool.
func New(o Options) *Pool {
	if o.Times == (Times{}) {
		o.Times = Defaults
	}
	return &Pool{options: o, sessions: sessions.New(
		func(ctx context.Context, s *session) { s.run(ctx) },
		func(s *session) { s.end() },
	)}
}

// Start runs the connections until the context ends. Steps that are under way end with it.
func (p *Pool) Start(ctx context.Context) error { return p.sessions.Start(ctx) }

func named(node string) types.NamespacedName { return types.NamespacedName{Name: node} }

// Follow keeps a connection to the runtime of a node. If it is asked elsewhere than before, or has another certificate, the
// connection is made again; what is known of machines stays, unless it is another node. It returns whether a connection
// begins or ends.
func (p *Pool) Follow(n *v1alpha1.SmolVMNode) (changed bool) {
	node, ok := NodeOf(n)
	if !ok {
		return p.Forget(n.Name)
	}
	former, _ := p.sessions.Get(named(n.Name))
	_, changed = p.sessions.Ensure(named(n.Name), func(s *session) bool { return s.node == node }, func() *session {
		return newSession(p.options, node, former)
	})
	return changed
}

// Forget ends the connection to a node. It returns whether there was one.
func (p *Pool) Forget(node string) (ends bool) { return p.sessions.End(named(node)) }

// Look returns what is known of a machine of a node. A machine that the runtime did not report is asked for first,
// because something is made, or given up, where there is none.
func (p *Pool) Look(node, machine string) state.Runtime {
	s, ok := p.sessions.Get(named(node))
	if !ok {
		return state.Runtime{
			Known: true, Reason: v1alpha1.ReasonRuntimeUnavailable,
			Message: "there is no SmolVMNode " + node + " that says where its runtime is asked",
		}
	}
	return s.look(machine)
}

// Do takes a step with a machine, or tells how far an earlier one has got. first is true if the step begins now, and none
// like it has failed before.
func (p *Pool) Do(node, machine string, r Request) (progress state.Progress, first bool) {
	s, ok := p.sessions.Get(named(node))
	if !ok {
		return state.Progress{}, false // the next pass finds that
	}
	return s.do(machine, r)
}

// Drop forgets a machine that nothing will be asked about.
func (p *Pool) Drop(node, machine string) {
	if s, ok := p.sessions.Get(named(node)); ok {
		s.drop(machine)
	}
}

// Peek returns what was last known of a machine, without asking; nil if it is not known.
func (p *Pool) Peek(node, machine string) *api.Machine {
	s, ok := p.sessions.Get(named(node))
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, known := s.machines[machine]; known {
		return &m
	}
	return nil
}
