// Package late has a cache, a client and an engine for kinds that may be installed, and removed, while the operator runs.
//
// They are a session: it begins when the definitions of all its kinds are established, and ends when one of them is gone.
// In a cache that other kinds share, one kind that is not installed would keep every controller from starting.
package late

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// State says whether the kinds of a session can be used.
type State int

const (
	// Unknown means that this has not been found out yet, or the kinds are there and their caches are not filled yet.
	Unknown State = iota
	// Absent means that at least one of the kinds is not installed.
	Absent
	// Installed means that the caches show what exists.
	Installed
)

// Definitions know the CustomResourceDefinitions.
type Definitions interface {
	// Established returns the UID of a definition that is served, and the empty one for another that exists.
	Established(ctx context.Context, name string) (uid types.UID, exists bool)
	// OnChange has f called after each change.
	OnChange(f func())
}

// Options are what a session needs.
type Options struct {
	// Name of the session in the log.
	Name string
	// Definitions know the CustomResourceDefinitions called Names. Their caches are filled before Start.
	Definitions Definitions
	Names       []string
	// Kinds are the kinds of the session. Each has the index apply.IndexOwner. Indexes are further ones.
	Kinds   []client.Object
	Indexes []Index
	// ByObject and Trim are as in cache.Options.
	ByObject map[client.Object]cache.ByObject
	Trim     toolscache.TransformFunc
	// REST, HTTP, Scheme and Mapper are those of the operator. The mapper knows the kinds without asking.
	REST   *rest.Config
	HTTP   *http.Client
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
	// Clock is that of the engines.
	Clock clock.PassiveClock
	// Adopts is as in apply.Engine.
	Adopts apply.Adoption
	// Wrap wraps the client of each session; nil wraps nothing.
	Wrap func(client.Client) client.Client
	// Changed is called after the state has changed. It must not block. It may be nil.
	Changed func()
	Logger  logr.Logger
}

// Index is an index over a kind.
type Index struct {
	Kind   client.Object
	Name   string
	Values client.IndexerFunc
}

// View is what a session offers at a moment.
type View struct {
	State State
	// Reader reads from the caches of the session, and Engine writes. They are nil unless State is Installed.
	Reader client.Reader
	Engine *apply.Engine
}

// Session follows the definitions of its kinds. It is a manager.Runnable, and safe for concurrent use.
type Session struct {
	options Options
	view    atomic.Pointer[View]
	changed chan struct{}

	mu      sync.Mutex
	sources []*subscription
	// current is nil while a kind is missing.
	current *connection
}

// New returns a session that begins once Start is called and its kinds exist.
func New(o Options) *Session {
	s := &Session{options: o, changed: make(chan struct{}, 1)}
	s.view.Store(&View{})
	o.Definitions.OnChange(s.look)
	return s
}

// View returns what the session offers now. It sends no request.
func (s *Session) View() View { return *s.view.Load() }

// NeedLeaderElection returns false: a replica that waits has its caches filled.
func (*Session) NeedLeaderElection() bool { return false }

// look has Start look at the definitions.
func (s *Session) look() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// retryBegin is when a session that could not begin is tried again.
const retryBegin = 5 * time.Second

// Start runs the session until the context ends, and returns when everything that it started has ended.
func (s *Session) Start(ctx context.Context) error {
	defer s.end(Unknown)
	for ctx.Err() == nil {
		again := s.follow(ctx)
		var timer <-chan time.Time
		if again > 0 {
			timer = time.After(again)
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-s.ended():
		case <-timer:
		}
	}
	return nil
}

// follow makes the session fit the definitions. It returns when to try again without a change; zero means never.
func (s *Session) follow(ctx context.Context) time.Duration {
	uids, state := s.definitions(ctx)
	current := s.connection()
	if current != nil && (state != Installed || current.uids != uids || current.lost.Err() != nil) {
		s.end(Unknown)
		current = nil
	}
	if state != Installed {
		s.show(View{State: state})
		return 0
	}
	if current != nil {
		return 0
	}
	if err := s.begin(ctx, uids); err != nil {
		s.options.Logger.Error(err, "cannot start a session", "session", s.options.Name)
		return retryBegin
	}
	return 0
}

// definitions returns the UIDs of the definitions, and Installed if all are served. The UIDs tell a definition from another
// one that was made after it was deleted.
func (s *Session) definitions(ctx context.Context) (uids string, state State) {
	state = Installed
	for _, name := range s.options.Names {
		uid, exists := s.options.Definitions.Established(ctx, name)
		if !exists {
			return "", Absent
		}
		if uid == "" {
			state = Unknown
		}
		uids += string(uid) + " "
	}
	return uids, state
}

func (s *Session) connection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// ended returns what is done when the connection ends by itself; it blocks while there is none.
func (s *Session) ended() <-chan struct{} {
	if current := s.connection(); current != nil {
		return current.lost.Done()
	}
	return nil
}

// begin starts to fill the caches. The session is installed when they are filled.
func (s *Session) begin(ctx context.Context, uids string) error {
	s.show(View{State: Unknown})
	c, err := newConnection(ctx, s.options, uids)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.current = c
	for _, subscription := range s.sources {
		if err == nil {
			err = subscription.attach(c)
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.end(Unknown)
		return err
	}
	c.start(func() { s.show(View{State: Installed, Reader: c.client, Engine: c.engine}) })
	return nil
}

// end ends the connection, if there is one, waits until all of it has ended, and shows the state.
func (s *Session) end(state State) {
	s.mu.Lock()
	c := s.current
	s.current = nil
	s.mu.Unlock()
	if c == nil {
		return
	}
	c.stop()
	s.show(View{State: state})
}

// show publishes a view.
func (s *Session) show(v View) {
	before := s.view.Swap(&v)
	if before.State == v.State && before.Engine == v.Engine {
		return
	}
	s.options.Logger.V(1).Info("the kinds of a session have changed", "session", s.options.Name, "state", v.State.String())
	if s.options.Changed != nil {
		s.options.Changed()
	}
}

// String returns the word for the state.
func (s State) String() string { return [...]string{"unknown", "absent", "installed"}[s] }
