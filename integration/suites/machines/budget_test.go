package machines_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// requests are the requests of the operator about a namespace since a moment, without events.
type requests []lab.Request

// since returns the requests about the namespace after the first n.
func (p *place) since(n int) requests {
	var rest requests
	for _, r := range p.operator.Requests.Of(p.namespace)[n:] {
		if !strings.Contains(r.Path, "/events") {
			rest = append(rest, r)
		}
	}
	return rest
}

// count returns how many requests there were so far, with events.
func (p *place) count() int { return len(p.operator.Requests.Of(p.namespace)) }

func (rs requests) writes() (writes, reads int) {
	for _, r := range rs {
		if r.Write() {
			writes++
		} else {
			reads++
		}
	}
	return writes, reads
}

// within fails the test if there are more requests than allowed, and logs them beside the target.
func (rs requests) within(t *testing.T, what string, mostWrites, mostReads int) {
	t.Helper()
	writes, reads := rs.writes()
	t.Logf("%s: %d writes (target %d), %d reads (target %d)", what, writes, mostWrites, reads, mostReads)
	for _, r := range rs {
		t.Logf("    %s", r)
	}
	if writes > mostWrites || reads > mostReads {
		t.Errorf("%s: too many requests", what)
	}
}

// slowness returns how many more writes are allowed on a machine on which the steps of KubeVirt are so far apart that the
// status of each is written: one for each second after the first one.
func slowness(began time.Time) int { return max(int(time.Since(began)/time.Second)-1, 0) }

// TestWhatAMachineCosts counts the requests for one Machine in every step of its life: plan §8.
func TestWhatAMachineCosts(t *testing.T) {
	p := alone(t)
	began := time.Now()
	m := p.machine("vm", "{template: medium}")
	p.await(m, runs)
	p.until(func() error { return p.placed(m) })
	more := slowness(began)
	p.settles()
	p.since(0).within(t, "created to Running", 7+more, 0)
	p.stays(m)
	// The first edit moves fields to the operator's applied ones, once for each object, which takes a read and a write, and
	// after it KubeVirt says that a restart is required, which the status shows.
	for i, most := range [][2]int{{4, 1}, {2, 0}, {2, 0}} {
		before := p.count()
		change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Cores = int32(3 + i) })
		p.await(m, want{phase: v1alpha1.PhaseRunning})
		p.settles()
		p.since(before).within(t, fmt.Sprintf("edit %d", i+1), most[0], most[1])
	}
	before := p.count()
	p.stop(m)
	p.settles()
	p.since(before).within(t, "stop", 4, 0)
	before = p.count()
	p.start(m)
	p.settles()
	p.since(before).within(t, "start", 4, 0)
	before = p.count()
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.settles()
	p.since(before).within(t, "deletion", 4, 0)
}

// TestWhatASecretAndANetworkAddToAMachine: one read and one write for a Secret, and one write for the attachment of a
// network.
func TestWhatASecretAndANetworkAddToAMachine(t *testing.T) {
	p := alone(t)
	p.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "data"}, StringData: map[string]string{"userdata": "#cloud-config\n"}})
	began := time.Now()
	m := p.machine("vm", "{template: medium, cloudInit: {secretRef: {name: data}}}")
	p.await(m, runs)
	more := slowness(began)
	p.settles()
	p.since(0).within(t, "with a Secret", 8+more, 1)
	before := p.count()
	p.network("front", "{vlan: 5}")
	p.settles()
	p.since(before).within(t, "a network", 2, 0)
	before = p.count()
	began = time.Now()
	n := p.machine("networked", "{template: medium, networks: [{name: eth0, networkName: front}]}")
	p.await(n, runs)
	more = slowness(began)
	p.settles()
	var own, shared requests
	for _, r := range p.since(before) {
		if strings.Contains(r.Path, "/networkconfigurations/") {
			shared = append(shared, r)
		} else {
			own = append(own, r)
		}
	}
	own.within(t, "with a network", 7+more, 0)
	shared.within(t, "its network", 3+more, 0)
}

// passes returns how many passes over Machines the operator has made.
func (o *operator) passes(t *testing.T) int {
	t.Helper()
	const name = `kubevirt_operator_reconciliation_duration_seconds_count{controller="Machine"} `
	_, rest, found := strings.Cut(o.metrics(t), name)
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	var n int
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAMachineIsGoneSoonAfterItsGuest: at most two seconds on an idle machine; here three times that.
func TestAMachineIsGoneSoonAfterItsGuest(t *testing.T) {
	p := alone(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	p.delete(m)
	var without time.Time
	p.until(func() error {
		vmi, vm := p.empty()
		vmi.SetName(m.Name)
		vm.SetName(m.Name)
		if err := gone(vmi); err != nil {
			return err
		}
		if err := gone(vm); err != nil {
			return err
		}
		without = time.Now()
		return nil
	})
	p.until(func() error { return gone(m.DeepCopy()) })
	took := time.Since(without)
	t.Logf("the Machine is gone %s after its guest (target 2s)", took.Round(time.Millisecond))
	if took > 6*time.Second {
		t.Errorf("that is too late")
	}
}
