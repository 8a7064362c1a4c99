package machines_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// many is how many Machines there are.
const many = 200

// TestManyMachinesOnOneNetwork is scenario 17 and K10, with twice as many Machines: five workers and no cross-talk; the
// status of the network that all share is complete and not written for each of them. After that the operator restarts,
// which costs nothing but its watches: plan §8.
func TestManyMachinesOnOneNetwork(t *testing.T) {
	p := alone(t)
	n := p.network("front", "{vlan: 100}")
	began := time.Now()
	var all []string
	for i := range many {
		all = append(all, fmt.Sprintf("vm-%d/eth0", i))
	}
	p.createMany(many, func(i int, m *v1alpha1.Machine) {
		m.Spec.Resources = v1alpha1.Resources{CPU: v1alpha1.CPU{Sockets: int32(1 + i%3)}}
		m.Spec.Networks = []v1alpha1.Network{{Name: "eth0", NetworkName: "front"}}
	})
	slices.Sort(all)
	p.longUntil(func() error { return p.allRun(many) })
	p.until(func() error { return attached(n, all...) })
	elapsed := time.Since(began)
	p.noCrossTalk(n)
	p.settles()
	writes := 0
	for _, r := range p.operator.Requests.Of(p.namespace) {
		if r.Write() && r.Method != http.MethodPost && strings.Contains(r.Path, "/networkconfigurations/") {
			writes++
		}
	}
	perSecond, requests := float64(writes)/elapsed.Seconds(), p.since(0)
	total, reads := requests.writes()
	t.Logf("%d Machines run after %s; %d writes of their network, %.1f a second (target 5); %.1f writes and %.2f reads for each",
		many, elapsed.Round(time.Second/10), writes, perSecond, float64(total)/many, float64(reads)/many)
	if perSecond > 5 {
		t.Errorf("%.1f writes a second of one NetworkConfiguration", perSecond)
	}
	p.restart()
	p.endAll()
}

// restart restarts the operator, and fails the test if the new one asks for more than the lists of its caches.
func (p *place) restart() {
	p.Helper()
	p.operator.stop(p.T)
	p.operator = serve(p.T)
	p.until(func() error {
		if n := p.operator.passes(p.T); n < many {
			return fmt.Errorf("%d of %d Machines were reconciled", n, many)
		}
		return nil
	})
	p.intervals(2)
	var asked requests
	for _, r := range p.operator.Requests.All() {
		if r.Method != http.MethodGet || strings.Contains(r.Path, p.namespace) {
			asked = append(asked, r)
		}
	}
	asked.within(p.T, fmt.Sprintf("restart with %d Machines", many), 0, 0)
	p.Logf("%d lists of caches and similar", len(p.operator.Requests.All())-len(asked))
}

// createMany creates small Machines, several at a time, with changes.
func (p *place) createMany(n int, changes ...func(int, *v1alpha1.Machine)) {
	p.Helper()
	var creating sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		creating.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			m := &v1alpha1.Machine{}
			m.Namespace, m.Name, m.Spec.Template = p.namespace, fmt.Sprintf("vm-%d", i), "small"
			for _, change := range changes {
				change(i, m)
			}
			if err := api.Create(context.Background(), m); err != nil {
				p.Error(err)
			}
		})
	}
	creating.Wait()
}

// allRun returns an error unless n Machines of the namespace run.
func (p *place) allRun(n int) error {
	list := &v1alpha1.MachineList{}
	if err := api.List(context.Background(), list, inNamespace(p)); err != nil {
		return err
	}
	running, last := 0, error(nil)
	for i := range list.Items {
		if err := runs.shows(&list.Items[i]); err != nil {
			last = err
			continue
		}
		running++
	}
	if running < n {
		return fmt.Errorf("%d of %d run; %w", running, n, last)
	}
	return nil
}

// noCrossTalk checks that every Machine has its own size, addresses and claim.
func (p *place) noCrossTalk(n *v1alpha1.NetworkConfiguration) {
	p.Helper()
	macs := map[string]string{}
	for _, a := range n.Status.Attachments {
		if other := macs[a.MACAddress]; other != "" {
			p.Errorf("%s and %s have the address %s", a.Machine, other, a.MACAddress)
		}
		macs[a.MACAddress] = a.Machine
	}
	for i := range many {
		m := get(p, fmt.Sprintf("vm-%d", i), &v1alpha1.Machine{})
		spec := p.vm(m).Spec.Template.Spec
		nic := spec.Domain.Devices.Interfaces[0]
		if spec.Domain.CPU.Sockets != uint32(1+i%3) || macs[nic.MacAddress] != m.Name || spec.Volumes[0].PersistentVolumeClaim.ClaimName != m.Name+"-root" {
			p.Errorf("%s has %d sockets, the address of %q and claim %s", m.Name, spec.Domain.CPU.Sockets, macs[nic.MacAddress], spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		}
		if len(m.Status.NetworkInterfaces) != 1 || m.Status.NetworkInterfaces[0].MACAddress != nic.MacAddress {
			p.Errorf("the status of %s has interfaces %+v", m.Name, m.Status.NetworkInterfaces)
		}
	}
}

// endAll deletes all Machines of the namespace and waits until they are gone.
func (p *place) endAll() {
	if err := api.DeleteAllOf(context.Background(), &v1alpha1.Machine{}, client.InNamespace(p.namespace)); err != nil {
		p.Error(err)
	}
	p.longUntil(func() error {
		list := &v1alpha1.MachineList{}
		if err := api.List(context.Background(), list, inNamespace(p)); err != nil || len(list.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d Machines are left: %s", len(list.Items), describe(&list.Items[0]))
	})
}
