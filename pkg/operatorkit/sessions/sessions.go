// Package sessions runs one goroutine for each object that a controller follows, such as a connection to its server.
package sessions

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Sessions are the sessions of all objects, by name. It is a manager.Runnable. Its methods are safe for concurrent use
// and, except Start, do not wait for a session.
type Sessions[T any] struct {
	run func(context.Context, T)
	end func(T)

	mu  sync.Mutex
	all map[types.NamespacedName]T
	// running is nil until Start is called.
	running context.Context // sessions that are added later live as long
	ended   sync.WaitGroup
}

// New returns Sessions that run once Start is called. run runs a session until its context ends or end is called; end
// may be called before run, and more than once.
func New[T any](run func(context.Context, T), end func(T)) *Sessions[T] {
	return &Sessions[T]{run: run, end: end, all: map[types.NamespacedName]T{}}
}

// Start runs the sessions, including those that were added before, until the context ends and all of them have ended.
func (s *Sessions[T]) Start(ctx context.Context) error {
	s.mu.Lock()
	s.running = ctx
	for _, session := range s.all {
		s.launch(session)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	for _, session := range s.all {
		s.end(session)
	}
	s.mu.Unlock()
	s.ended.Wait()
	return nil
}

// launch runs a session. It launches none once the context of Start has ended, because Start then waits for the
// goroutines. mu is held.
func (s *Sessions[T]) launch(session T) {
	if s.running == nil || s.running.Err() != nil {
		return
	}
	ctx := s.running
	s.ended.Go(func() { s.run(ctx, session) })
}

// Ensure returns the session of an object. If there is none, or it does not fit, it creates another one, ends the former
// one, and returns true. create must not block.
func (s *Sessions[T]) Ensure(name types.NamespacedName, fits func(T) bool, create func() T) (session T, created bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, exists := s.all[name]
	if exists && fits(session) {
		return session, false
	}
	if exists {
		s.end(session)
	}
	session = create()
	s.all[name] = session
	s.launch(session)
	return session, true
}

// Get returns the session of an object, if there is one.
func (s *Sessions[T]) Get(name types.NamespacedName) (session T, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, exists = s.all[name]
	return session, exists
}

// End ends the session of an object and forgets it. It returns whether there was one.
func (s *Sessions[T]) End(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, exists := s.all[name]
	if exists {
		s.end(session)
		delete(s.all, name)
	}
	return exists
}
