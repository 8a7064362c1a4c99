package server

import (
	"context"
	"net/http"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func (s *server) health(w http.ResponseWriter, r *http.Request, _ params) error {
	health, err := s.machines.Health(r.Context())
	return answer(w, health, err)
}

// ready is answered with 503 unless the machines' host answers soon.
func (s *server) ready(w http.ResponseWriter, r *http.Request, _ params) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.limits.probe)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := s.machines.Health(ctx)
		failed <- err
	}()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "the machines do not answer: %v", err)
	}
	return answer(w, api.Status{Status: "ready"}, nil)
}

func (s *server) capacity(w http.ResponseWriter, r *http.Request, _ params) error {
	capacity, err := s.machines.Capacity(r.Context())
	return answer(w, capacity, err)
}

func (s *server) drain(w http.ResponseWriter, r *http.Request, _ params) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.limits.drain)
	defer cancel()
	err := s.machines.Drain(ctx)
	s.watch.poke()
	return answer(w, api.Status{Status: "drained"}, err)
}

func (s *server) egressEvents(w http.ResponseWriter, r *http.Request, p params) error {
	const usually = 200
	limit, err := parse(r.URL.Query(), "limit", usually, readCount)
	if err != nil {
		return err
	}
	events, err := s.machines.EgressEvents(r.Context(), p.name, min(limit, s.limits.egressEvents))
	if events == nil {
		events = []api.EgressEvent{}
	}
	return answer(w, api.EgressEvents{Events: events}, err)
}

func (s *server) serveMetrics(w http.ResponseWriter, r *http.Request, _ params) error {
	s.metrics.ServeHTTP(w, r)
	return nil
}

func (s *server) describe(w http.ResponseWriter, _ *http.Request, _ params) error {
	w.Header().Set(contentType, typeJSON)
	_, _ = w.Write(s.document)
	return nil
}
