package smolvm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/service"
)

// operation is a step in the life of a machine for which the controller needs several writes.
type operation struct {
	// from has an operator bring the machine to where the step begins; nil if it begins without one.
	from func(t *testing.T, vm *v1alpha1.SmolVM)
	// do is what the user does.
	do func(t *testing.T, vm *v1alpha1.SmolVM)
	// done returns an error until the step is over.
	done func(t *testing.T, vm *v1alpha1.SmolVM) error
	// most is how many writes the step takes at most, events apart.
	most int
	// once are the requests to the runtime that may be made once, however often the controller crashes.
	once []string
}

func running(t *testing.T, vm *v1alpha1.SmolVM) error { return hasPhase(t, vm, v1alpha1.PhaseRunning) }

func stopped(t *testing.T, vm *v1alpha1.SmolVM) error { return hasPhase(t, vm, v1alpha1.PhaseStopped) }

func started(t *testing.T, vm *v1alpha1.SmolVM) { phaseIs(t, vm, v1alpha1.PhaseRunning) }

func runs(running bool, storage int64) func(*testing.T, *v1alpha1.SmolVM) {
	return func(t *testing.T, vm *v1alpha1.SmolVM) {
		change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Running, vm.Spec.Storage.StorageGiB = running, storage })
	}
}

func halted(t *testing.T, vm *v1alpha1.SmolVM) {
	started(t, vm)
	runs(false, 20)(t, vm)
	phaseIs(t, vm, v1alpha1.PhaseStopped)
}

var operations = map[string]operation{
	"create": {do: func(*testing.T, *v1alpha1.SmolVM) {}, done: running, most: 5, once: []string{"create", "start"}},
	"stop":   {from: started, do: runs(false, 20), done: stopped, most: 2, once: []string{"stop"}},
	"start":  {from: halted, do: runs(true, 20), done: running, most: 2},
	"grow":   {from: halted, do: runs(false, 30), done: grown, most: 2, once: []string{"resize"}},
	"delete": {
		from: started, do: func(t *testing.T, vm *v1alpha1.SmolVM) { theLab.Delete(t, vm) },
		done: func(t *testing.T, vm *v1alpha1.SmolVM) error {
			if theLab.Exists(t, vm.DeepCopy()) {
				return errors.New("it is still there")
			}
			return nil
		}, most: 2, once: []string{"delete"},
	},
}

func grown(t *testing.T, vm *v1alpha1.SmolVM) error {
	if size := current(t, vm).Status.StorageGiB; size == nil || *size != 30 {
		return errors.New("the disk has not grown")
	}
	return stopped(t, vm)
}

// TestOperationsSurviveACrashAtEveryWrite: a controller may crash after any answer of the API server, and the next
// one ends where one without a crash does, and no machine is made or started twice.
func TestOperationsSurviveACrashAtEveryWrite(t *testing.T) {
	for name, o := range operations {
		t.Run(name, func(t *testing.T) {
			n := nodesOf(t, "a")[0]
			begin := func(vm string) *v1alpha1.SmolVM {
				made := vmOf(t, vm, nil)
				if o.from != nil {
					operator := theLab.Run(t, withSmolVMs)
					o.from(t, made)
					operator.Stop()
				}
				o.do(t, made)
				return made
			}
			calm := begin("calm")
			operator := theLab.Run(t, withSmolVMs)
			lab.Eventually(t, patience, func() error { return o.done(t, calm) })
			operator.Stop()
			all, writes := len(operator.Requests.Writes()), writesOf(operator)
			if len(writes) > o.most {
				t.Errorf("%d writes, want %d at most: %v", len(writes), o.most, writes)
			}
			t.Logf("%s: %d writes of the object, %d with events", name, len(writes), all)
			remove(calm)
			for k := 1; k <= all; k++ {
				vm := begin(fmt.Sprintf("w%d", k))
				crash := &lab.Crash{K: k}
				first := theLab.Run(t, withSmolVMs, func(c *service.Config) {
					c.REST = rest.CopyConfig(c.REST)
					c.REST.Wrap(crash.Transport)
				})
				lab.Eventually(t, patience, func() error {
					if !crash.Crashed() && o.done(t, vm) != nil {
						return errors.New("it has not crashed")
					}
					return nil
				})
				first.Stop()
				second := theLab.Run(t, withSmolVMs)
				lab.Eventually(t, patience, func() error { return o.done(t, vm) })
				second.Stop()
				for _, operation := range o.once {
					if made := n.count(operation, machineOf(vm)); made != 1 {
						t.Errorf("crash after write %d: %d times %s: %v", k, made, operation, n.did)
					}
				}
				remove(vm)
			}
		})
	}
}

// writesOf returns the writes of an operator, events apart.
func writesOf(o *lab.Operator) []lab.Request {
	var writes []lab.Request
	for _, request := range o.Requests.Writes() {
		if !strings.Contains(request.Path, "/events") {
			writes = append(writes, request)
		}
	}
	return writes
}

// TestTwoControllersMakeOneMachine: both decide, and one decision is stored.
func TestTwoControllersMakeOneMachine(t *testing.T) {
	all := nodesOf(t, "a", "b", "c")
	first, second := theLab.Run(t, withSmolVMs), theLab.Run(t, withSmolVMs)
	var vms []*v1alpha1.SmolVM
	for i := range 12 {
		vms = append(vms, vmOf(t, fmt.Sprintf("vm%d", i), nil))
	}
	for _, vm := range vms {
		phaseIs(t, vm, v1alpha1.PhaseRunning)
	}
	first.Stop()
	second.Stop()
	for _, vm := range vms {
		var where []string
		for _, n := range all {
			if _, there := n.has(machineOf(vm)); there {
				where = append(where, n.name)
			}
		}
		if len(where) != 1 || where[0] != current(t, vm).Status.NodeName {
			t.Errorf("%s is on %v, and its status says %s", vm.Name, where, current(t, vm).Status.NodeName)
		}
		remove(vm)
	}
}

// TestManyMachinesFillANodeAndNoMore: what was decided a moment ago counts for the next decision.
func TestManyMachinesFillANodeAndNoMore(t *testing.T) {
	all := nodesOf(t, "a", "b")
	var vms []*v1alpha1.SmolVM
	for i := range 20 { // 16 processors
		vms = append(vms, vmOf(t, fmt.Sprintf("vm%02d", i), func(s *v1alpha1.SmolVMSpec) {
			s.Storage = v1alpha1.Storage{StorageGiB: 1, OverlayGiB: 1}
			s.Network.Ports = []v1alpha1.Port{{HostPort: int32(9000 + i%10), GuestPort: 80}}
		}))
	}
	operator := theLab.Run(t, withSmolVMs)
	lab.Eventually(t, patience, func() error {
		phases := map[v1alpha1.Phase]int{}
		for _, vm := range vms {
			phases[current(t, vm).Status.Phase]++
		}
		if phases[v1alpha1.PhaseRunning] != 16 || phases[v1alpha1.PhasePending] != 4 {
			return fmt.Errorf("the phases are %v", phases)
		}
		return nil
	})
	operator.Stop()
	for _, n := range all {
		ports := map[uint16]bool{}
		machines, _ := n.List(t.Context())
		for _, m := range machines {
			if ports[m.Ports[0].Host] {
				t.Errorf("node %s has port %d twice", n.name, m.Ports[0].Host)
			}
			ports[m.Ports[0].Host] = true
		}
		if len(machines) > 8 {
			t.Errorf("node %s has %d machines", n.name, len(machines))
		}
	}
}

// TestAQuietControllerAsksNothing: neither heartbeats nor time make it do anything.
func TestAQuietControllerAsksNothing(t *testing.T) {
	n := nodesOf(t, "a")[0]
	operator := theLab.Run(t, withSmolVMs)
	for i := range 4 {
		started(t, vmOf(t, fmt.Sprintf("vm%d", i), nil))
	}
	waiting := vmOf(t, "waiting", func(s *v1alpha1.SmolVMSpec) { s.Resources.CPUs = 100 })
	phaseIs(t, waiting, v1alpha1.PhasePending)
	awaitRest(t, operator)
	operator.Requests.Reset()
	for range 5 {
		n.report(t, nil)
		time.Sleep(200 * time.Millisecond)
	}
	if all := operator.Requests.All(); len(all) > 0 {
		t.Errorf("%d requests: %v", len(all), all)
	}
	operator.Stop()
}

// awaitRest waits until an operator has written nothing for a second. Events are recorded beside the passes.
func awaitRest(t testing.TB, operator *lab.Operator) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		before := len(operator.Requests.Writes())
		time.Sleep(time.Second)
		if after := len(operator.Requests.Writes()); after != before {
			return fmt.Errorf("%d more writes", after-before)
		}
		return nil
	})
}

// TestARuntimeThatCannotTellChangesIsAsked, as one whose smolvm cannot.
func TestARuntimeThatCannotTellChangesIsAsked(t *testing.T) {
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) { f.deaf = true })
	operator := theLab.Run(t, withSmolVMs)
	vm := vmOf(t, "vm", nil)
	started(t, vm)
	n.change(machineOf(vm), func(m *api.Machine) { m.State = api.StateStopped })
	lab.Eventually(t, patience, func() error {
		if n.count("start", machineOf(vm)) != 2 {
			return errors.New("it is not started again")
		}
		return nil
	})
	operator.Stop()
}
