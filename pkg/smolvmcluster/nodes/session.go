package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	// lasting is how long a connection lasts after which another one is made soon.
	lasting = time.Minute
	// Changes are taken at this rate: who controls a node must not keep the controller busy.
	changesPerSecond = 20
	changesBurst     = 500
	// mostMachines bounds what is remembered of a node, as do mostOfMachine and mostOfAll, in bytes of JSON.
	mostMachines  = 10_000
	mostOfMachine = 64 << 10
	mostOfAll     = 32 << 20
)

// session is the connection to the runtime of a node, and what is known through it.
type session struct {
	options Options
	node    Node
	limiter *rate.Limiter
	// slots bound how many steps are under way on the node, starts how many long ones beside them, and shares how many of
	// either a namespace has.
	slots, starts chan struct{}
	shares        map[share]chan struct{}
	// life ends when the session is no longer wanted.
	life context.Context
	end  context.CancelFunc

	mu sync.Mutex
	// client is nil until the session runs.
	client *api.Client
	// heard is whether a runtime of this node has ever told its machines, and lost when the connection was lost; zero while it
	// is there.
	heard bool
	lost  time.Time
	// reason and message say why the runtime cannot be asked, grave that it may not wait for the grace to end.
	reason, message string
	grave           bool
	// told is whether all were notified that it cannot be asked, and shown whether some have seen that when they looked.
	told, shown bool
	machines    map[string]api.Machine
	// sizes are those of machines as JSON, in bytes, and sum is theirs.
	sizes map[string]int
	sum   int
	// absent are machines that the runtime was asked for and does not have.
	absent map[string]bool
	works  map[string]*work
	// asks are questions whether there are machines. They are beside the works, whose pauses they must not end.
	asks map[string]*work
	// runs are the last starts of machines.
	runs map[string]run
}

// slotsPerNode is how many steps are under way on a node at a time, besides long ones: starts, and creations with a file. Those
// may take minutes, and have their own slots. One namespace gets all of neither.
const (
	slotsPerNode       = 16
	stepsPerNamespace  = 8
	startsPerNode      = 8
	startsPerNamespace = 2
)

// share is what a namespace has of the slots of a node.
type share struct {
	namespace string
	long      bool
}

func newSession(o Options, n Node, former *session) *session {
	s := &session{
		options: o, node: n, limiter: rate.NewLimiter(changesPerSecond, changesBurst), slots: make(chan struct{}, slotsPerNode),
		starts: make(chan struct{}, startsPerNode), shares: map[share]chan struct{}{},
		machines: map[string]api.Machine{}, sizes: map[string]int{}, absent: map[string]bool{}, works: map[string]*work{}, asks: map[string]*work{}, runs: map[string]run{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	if former == nil || former.node.UID != n.UID {
		return s
	}
	former.mu.Lock()
	defer former.mu.Unlock()
	s.heard, s.lost, s.reason, s.message, s.grave = former.heard, former.lost, former.reason, former.message, former.grave
	s.told, s.shown = former.told, former.shown
	maps.Copy(s.machines, former.machines)
	maps.Copy(s.sizes, former.sizes)
	s.sum = former.sum
	maps.Copy(s.runs, former.runs)
	if s.heard && s.lost.IsZero() {
		s.lost = time.Now()
	}
	return s
}

// run keeps connecting to the runtime until the context ends or the session is no longer wanted.
func (s *session) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, s.end)
	context.AfterFunc(s.life, cancel)
	client, err := s.options.client(s.node)
	if err != nil {
		s.lose(err)
		return
	}
	defer client.Close()
	s.mu.Lock()
	s.client = client
	s.mu.Unlock()
	t := s.options.Times
	for pause := t.First; ctx.Err() == nil; pause = min(2*pause, t.Last) {
		began := time.Now()
		err := s.listen(ctx, client)
		if ctx.Err() != nil {
			return
		}
		again := s.lose(err)
		if time.Since(began) > lasting {
			pause = t.First
		}
		next := wait.Jitter(pause/2, 1)
		if again > 0 {
			next = min(next, again)
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// listen takes what the runtime tells until the connection is lost.
func (s *session) listen(ctx context.Context, client *api.Client) error {
	if err := s.identify(ctx, client); err != nil {
		return err
	}
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(s.options.Times.Silence, func() { cancel(errSilent) })
	defer silence.Stop()
	err := client.Watch(watching, func(e api.WatchEvent) error {
		silence.Stop()
		return s.take(watching, e)
	})
	silence.Stop()
	if api.CodeOf(err) == api.CodeUnsupported {
		return s.poll(ctx, client)
	}
	return err
}

// identify checks that the runtime is that of the node: a SmolVMNode may show the endpoint and the certificate of another.
func (s *session) identify(ctx context.Context, client *api.Client) error {
	asking, cancel := context.WithTimeout(ctx, s.options.Times.Silence)
	defer cancel()
	is, err := client.Identity(asking)
	switch {
	case err != nil && api.ErrorOf(err).Status() == http.StatusNotFound:
		return fmt.Errorf("%w: it does not say on which node it is", errIdentity)
	case err != nil:
		return err
	case is.NodeName != s.node.Name:
		return fmt.Errorf("%w: it says that it is on node %q", errIdentity, text.Beginning(is.NodeName, maxName))
	case is.NodeUID != "" && s.node.UID != "" && is.NodeUID != string(s.node.UID):
		return fmt.Errorf("%w: it says that its node has the UID %q, and SmolVMNode %s has %q", errIdentity, text.Beginning(is.NodeUID, maxName), s.node.Name, s.node.UID)
	}
	return nil
}

// maxName bounds the names of a runtime in messages, in bytes, because the runtime chooses them.
const maxName = 253

// poll asks a runtime that cannot report changes, as one whose smolvm cannot.
func (s *session) poll(ctx context.Context, client *api.Client) error {
	for {
		asking, cancel := context.WithTimeout(ctx, s.options.Times.Get)
		machines, err := client.List(asking)
		cancel()
		if err == nil {
			err = s.take(ctx, api.WatchEvent{Type: api.WatchSnapshot, Machines: machines})
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.options.Times.Poll):
		}
	}
}

// take remembers what the runtime tells.
func (s *session) take(ctx context.Context, e api.WatchEvent) error {
	var changed []string
	switch {
	case e.Type == api.WatchSnapshot:
		return s.takeAll(ctx, e.Machines)
	case e.Type == api.WatchChanged && e.Machine != nil:
		news, err := s.remember(*e.Machine)
		if err != nil || !news {
			return err
		}
		changed = []string{e.Machine.Name}
	case e.Type == api.WatchDeleted:
		if !s.unlearn(e.Name) {
			return nil
		}
		changed = []string{e.Name}
	case e.Type == api.WatchError:
		return s.suffer(ctx, e.Error)
	}
	return s.tell(ctx, changed)
}

// tell reports changes, no faster than is allowed.
func (s *session) tell(ctx context.Context, changed []string) error {
	for _, name := range changed {
		if err := s.limiter.Wait(ctx); err != nil {
			return err
		}
		s.options.Changed(s.node.Name, name)
	}
	return nil
}

// suffer remembers that the runtime cannot tell the state of its machines.
func (s *session) suffer(ctx context.Context, e *api.Error) error {
	if e == nil {
		e = api.Errorf(api.CodeInternal, "the runtime cannot tell the state of its machines")
	}
	s.mu.Lock()
	reason, message := s.node.reasonOf(e)
	same := s.told && s.reason == reason && s.message == message
	s.reason, s.message, s.grave, s.told = reason, message, true, true
	s.mu.Unlock()
	if same {
		return nil
	}
	return s.tell(ctx, []string{""})
}

// lose remembers why the connection was lost, and returns when that begins to count; zero if it does already.
func (s *session) lose(err error) time.Duration {
	s.mu.Lock()
	before := s.reason + s.message
	s.reason, s.message = s.node.reasonOf(err)
	// Neither of these passes by itself, so nothing speaks for what was known before.
	s.grave = !s.heard || errors.Is(err, errTooMuch) || s.reason == v1alpha1.ReasonUnauthorized || s.reason == v1alpha1.ReasonCertificateMismatch
	if s.lost.IsZero() {
		s.lost = time.Now()
	}
	left := s.graceLeft()
	news := left == 0 && (!s.told || before != s.reason+s.message)
	if left == 0 {
		s.told = true
	}
	s.mu.Unlock()
	if news {
		s.options.Changed(s.node.Name, "")
	}
	return left
}

// graceLeft returns for how long what was known still counts. mu is held.
func (s *session) graceLeft() time.Duration {
	if s.grave {
		return 0
	}
	return max(0, s.options.Times.Grace-time.Since(s.lost))
}
