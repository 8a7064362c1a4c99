package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
)

// errTooMuch means that a runtime reports more than is kept of a node. Its session ends.
var errTooMuch = errors.New("it reports too much")

// takeAll remembers all machines of the runtime.
func (s *session) takeAll(ctx context.Context, machines []api.Machine) error {
	s.mu.Lock()
	known, sizes, sum, fresh := s.machines, s.sizes, s.sum, !s.heard || s.told || s.shown
	s.machines, s.sizes, s.sum = make(map[string]api.Machine, min(len(machines), mostMachines)), map[string]int{}, 0
	var changed []string
	for _, m := range machines {
		if !strings.HasPrefix(m.Name, machinespec.Prefix) {
			continue
		}
		if err := s.put(m); err != nil {
			s.machines, s.sizes, s.sum = known, sizes, sum
			s.mu.Unlock()
			return err
		}
		if before, ok := known[m.Name]; !ok || !reflect.DeepEqual(before, m) {
			changed = append(changed, m.Name)
		}
	}
	for name := range known {
		if _, ok := s.machines[name]; !ok {
			changed = append(changed, name)
		}
	}
	clear(s.absent)
	s.heard, s.lost, s.reason, s.message, s.grave = true, time.Time{}, "", "", false
	s.told, s.shown = false, false
	s.mu.Unlock()
	if fresh {
		changed = []string{""}
	}
	return s.tell(ctx, changed)
}

// put remembers a machine, which is the runtime's word and takes no more than its share of memory. mu is held.
func (s *session) put(m api.Machine) error {
	encoded, err := json.Marshal(m)
	switch size := len(encoded); {
	case err != nil:
		return fmt.Errorf("encoding machine %s: %w", m.Name, err)
	case size > mostOfMachine:
		return fmt.Errorf("%w: its report of machine %s has more than %d bytes", errTooMuch, text.Beginning(m.Name, maxName), mostOfMachine)
	case s.sum-s.sizes[m.Name]+size > mostOfAll:
		return fmt.Errorf("%w: its report of all machines has more than %d bytes", errTooMuch, mostOfAll)
	case s.sizes[m.Name] == 0 && len(s.machines) >= mostMachines:
		return fmt.Errorf("%w: it has more than %d machines", errTooMuch, mostMachines)
	default:
		s.sum += size - s.sizes[m.Name]
		s.sizes[m.Name], s.machines[m.Name] = size, m
		return nil
	}
}

// remove forgets a machine. mu is held.
func (s *session) remove(name string) {
	s.sum -= s.sizes[name]
	delete(s.sizes, name)
	delete(s.machines, name)
}

// remember remembers a machine that can be a SmolVM's, and returns whether it differs from what was known.
func (s *session) remember(m api.Machine) (bool, error) {
	if !strings.HasPrefix(m.Name, machinespec.Prefix) {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.machines[m.Name]
	if err := s.put(m); err != nil {
		return false, err
	}
	delete(s.absent, m.Name)
	return !known || !reflect.DeepEqual(before, m), nil
}

// unlearn forgets a machine that the runtime says is gone. It is asked for before anything follows from that.
func (s *session) unlearn(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.machines[name]
	s.remove(name)
	delete(s.absent, name)
	return known
}
