package server

import (
	"encoding/json"
	"net/http"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// complete returns a machine with its lists, which are never null.
func complete(m api.Machine) api.Machine {
	if m.Mounts == nil {
		m.Mounts = []api.Mount{}
	}
	if m.Ports == nil {
		m.Ports = []api.Port{}
	}
	return m
}

func completeAll(list []api.Machine) []api.Machine {
	all := make([]api.Machine, 0, len(list))
	for _, m := range list {
		all = append(all, complete(m))
	}
	return all
}

func (s *server) list(w http.ResponseWriter, r *http.Request, _ params) error {
	if isWatch(r) {
		return s.watchMachines(w, r)
	}
	list, err := s.machines.List(r.Context())
	return answer(w, api.Machines{Machines: completeAll(list)}, err)
}

func (s *server) get(w http.ResponseWriter, r *http.Request, p params) error {
	m, err := s.machines.Get(r.Context(), p.name)
	return answer(w, complete(m), err)
}

func (s *server) create(w http.ResponseWriter, r *http.Request, _ params) error {
	request, normal, err := decode[api.CreateRequest](w, r, s.limits.body, lenient)
	if err != nil {
		return err
	}
	// A name that is absent is generated; an empty one is a mistake, as in smolvm.
	var given struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(normal, &given); err != nil {
		return err
	}
	if given.Name != nil && *given.Name == "" {
		return api.Errorf(api.CodeBadRequest, "machine name cannot be empty")
	}
	return s.changed(w)(s.machines.Create(r.Context(), request))
}

func (s *server) start(w http.ResponseWriter, r *http.Request, p params) error {
	var request api.StartRequest
	if r.ContentLength != 0 {
		var err error
		if request, _, err = decode[api.StartRequest](w, r, s.limits.body, lenient); err != nil {
			return err
		}
	}
	return s.changed(w)(s.machines.Start(r.Context(), p.name, request))
}

func (s *server) stop(w http.ResponseWriter, r *http.Request, p params) error {
	return s.changed(w)(s.machines.Stop(r.Context(), p.name))
}

func (s *server) resize(w http.ResponseWriter, r *http.Request, p params) error {
	request, _, err := decode[api.ResizeRequest](w, r, s.limits.body, lenient)
	if err != nil {
		return err
	}
	if request.StorageGB == nil && request.OverlayGB == nil {
		return api.Errorf(api.CodeBadRequest, "at least one of storageGb and overlayGb must be given")
	}
	return s.changed(w)(s.machines.Resize(r.Context(), p.name, request))
}

func (s *server) delete(w http.ResponseWriter, r *http.Request, p params) error {
	err := s.machines.Delete(r.Context(), p.name)
	s.watch.poke()
	return answer(w, api.Deleted{Deleted: p.name}, err)
}

// changed returns a function that answers with a machine that may have changed, and tells those who watch.
func (s *server) changed(w http.ResponseWriter) func(api.Machine, error) error {
	return func(m api.Machine, err error) error {
		s.watch.poke()
		return answer(w, complete(m), err)
	}
}
