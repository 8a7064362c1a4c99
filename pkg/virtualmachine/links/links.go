// Package links keeps a link with the runner of each running virtual machine.
package links

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/sessions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Dial runs `runner link` in the container of a runner, with its standard input and output, until it ends or the context
// does.
type Dial func(ctx context.Context, runner virtualmachine.RunnerID, in io.Reader, out io.Writer) error

// Pauses between two attempts to link with a runner.
const (
	firstPause = time.Second
	lastPause  = 5 * time.Minute
	// lasting is how long a link lasts after which another one is made soon.
	lasting = time.Minute
)

// attemptsPerSecond is how many links are made in a second.
const attemptsPerSecond = 20

// Reports of a runner are taken at this rate: who controls a runner must not make the operator write all the time.
const (
	reportEvery = 5 * time.Second
	reportBurst = 10
	// Reports are read at this rate, in reports per second, of which the newest is taken.
	readPerSecond = 2
	readBurst     = 10
)

// Links are the links of all virtual machines, by the name of the VirtualMachine. It is a manager.Runnable, and links
// nothing before it is started. Its methods are safe for concurrent use and, except Start, do not wait.
type Links struct {
	dial     Dial
	changed  func(types.NamespacedName)
	allowed  func() error
	sessions *sessions.Sessions[*link]
	// attempts bounds how many links are made at a time, after a failover for example.
	attempts *rate.Limiter
}

// New returns Links. changed is called when something is known of a virtual machine that was not; it must not block.
// allowed returns an error unless this operator may order something.
func New(dial Dial, changed func(types.NamespacedName), allowed func() error) *Links {
	l := &Links{dial: dial, changed: changed, allowed: allowed, attempts: rate.NewLimiter(attemptsPerSecond, attemptsPerSecond)}
	l.sessions = sessions.New(func(ctx context.Context, s *link) { s.run(ctx) }, func(s *link) { s.end() })
	return l
}

// Start runs the links until the context ends.
func (l *Links) Start(ctx context.Context) error { return l.sessions.Start(ctx) }

// Follow keeps a link with the runner of a virtual machine. It returns whether that link is a new one.
func (l *Links) Follow(name types.NamespacedName, runner virtualmachine.RunnerID) (begins bool) {
	_, begins = l.sessions.Ensure(name, func(s *link) bool { return s.runner == runner }, func() *link {
		s := &link{links: l, name: name, runner: runner, ordered: make(chan struct{}, 1)}
		s.life, s.end = context.WithCancel(context.Background())
		return s
	})
	return begins
}

// Known returns what is known through the link with a runner: nothing without a link, or with another runner.
func (l *Links) Known(name types.NamespacedName, runner virtualmachine.RunnerID) virtualmachine.Link {
	s, ok := l.sessions.Get(name)
	if !ok || s.runner != runner {
		return virtualmachine.Link{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// Forget ends the link of a virtual machine. It returns whether there was one.
func (l *Links) Forget(name types.NamespacedName) (ends bool) { return l.sessions.End(name) }

// Order tells the runner of a virtual machine what the machine is to be, as soon as there is a link, and again whenever
// there is another one.
func (l *Links) Order(name types.NamespacedName, live vmconfig.Live) {
	s, ok := l.sessions.Get(name)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order != nil && s.order.Same(live) {
		return
	}
	s.order = &live
	s.tell()
}

// link is the link with one runner.
type link struct {
	links  *Links
	name   types.NamespacedName
	runner virtualmachine.RunnerID
	// life ends when the link is no longer wanted.
	life context.Context
	end  context.CancelFunc
	// ordered says that order has changed.
	ordered chan struct{}

	mu    sync.Mutex
	known virtualmachine.Link
	order *vmconfig.Live
}

// run keeps linking with the runner until the context ends or the link is no longer wanted.
func (s *link) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(s.life, cancel)
	limiter := rate.NewLimiter(rate.Every(reportEvery), reportBurst)
	for pause := firstPause; s.links.attempts.Wait(ctx) == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := s.attempt(ctx, limiter)
		if limiter.Wait(ctx) != nil {
			return
		}
		s.lose(err)
		if time.Since(began) > lasting {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-s.ordered:
			// A person waits for this change, with which the next attempt begins.
			pause = firstPause
		case <-time.After(wait.Jitter(pause, 1)):
		}
	}
}

// attempt links with the runner once, and returns why the link ended.
func (s *link) attempt(life context.Context, limiter *rate.Limiter) (err error) {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	ordersOut, ordersIn := io.Pipe()
	reportsOut, reportsIn := io.Pipe()
	var group sync.WaitGroup
	var orderErr, reportErr error
	group.Go(func() {
		defer cancel()
		orderErr = s.sendOrders(ctx, ordersIn)
		_ = ordersIn.Close()
	})
	group.Go(func() {
		defer cancel()
		reportErr = s.takeReports(life, reportsOut, limiter)
		_ = reportsOut.CloseWithError(errCut)
	})
	err = s.links.dial(ctx, s.runner, ordersOut, reportsIn)
	cancel()
	_ = ordersOut.CloseWithError(errCut)
	_ = reportsIn.Close()
	group.Wait()
	if err = errors.Join(reportErr, orderErr, err); err == nil {
		err = errCut
	}
	return err
}

var errCut = errors.New("the link was cut")

// sendOrders sends what the machine is to be, and again whenever that changes.
func (s *link) sendOrders(ctx context.Context, to io.Writer) error {
	for {
		s.mu.Lock()
		order := s.order
		s.mu.Unlock()
		if order != nil {
			if err := s.links.allowed(); err != nil {
				return err
			}
			line, err := vmconfig.Order{Live: *order}.Encode()
			if err != nil {
				return err
			}
			if _, err := to.Write(line); err != nil {
				return nil //nolint:nilerr // the link was cut, which its other end explains
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.ordered:
		}
	}
}

// takeReports takes reports until the link is cut, or one cannot be understood. Of those that come faster than the
// limiter allows, it takes the newest, because each says everything that the runner knows.
func (s *link) takeReports(ctx context.Context, from io.Reader, limiter *rate.Limiter) error {
	newest := make(chan vmconfig.Report, 1)
	var learning sync.WaitGroup
	learning.Go(func() { s.learnAll(ctx, newest, limiter) })
	defer learning.Wait()
	defer close(newest)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, vmconfig.MaxLine)
	// A runner of this project reports once a second at most. Others may not keep the operator busy with decoding.
	reading := rate.NewLimiter(readPerSecond, readBurst)
	for lines.Scan() {
		report, err := vmconfig.DecodeReport(lines.Bytes())
		if err == nil {
			err = reading.Wait(ctx)
		}
		if err != nil {
			return err
		}
		select {
		case <-newest: // an older one
		default:
		}
		newest <- report
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a report is longer than %d bytes", vmconfig.MaxLine)
	}
	return nil
}

// learnAll takes the newest of the reports whenever the limiter allows it, until there are no more.
func (s *link) learnAll(ctx context.Context, newest <-chan vmconfig.Report, limiter *rate.Limiter) {
	for report := range newest {
		if limiter.Wait(ctx) != nil {
			continue // the link ends
		}
		select {
		case later, ok := <-newest:
			if ok {
				report = later
			}
		default:
		}
		s.learn(report)
	}
}

// learn takes a report. A runner that got another order, from another operator or a person, gets the order again.
func (s *link) learn(report vmconfig.Report) {
	s.mu.Lock()
	same := s.known.Err == nil && s.known.Report != nil && s.known.Report.Same(report)
	s.known = virtualmachine.Link{Report: &report}
	if s.order != nil && !s.order.Same(report.Wanted) {
		s.tell()
	}
	s.mu.Unlock()
	if !same {
		s.links.changed(s.name)
	}
}

// tell makes the order be sent again.
func (s *link) tell() {
	select {
	case s.ordered <- struct{}{}:
	default: // it will be
	}
}

func (s *link) lose(err error) {
	s.mu.Lock()
	same := s.known.Err != nil && text.Steady(s.known.Err.Error()) == text.Steady(err.Error())
	s.known.Err = err
	s.mu.Unlock()
	if !same {
		s.links.changed(s.name)
	}
}
