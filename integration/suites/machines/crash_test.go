package machines_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// operation is a step in the life of a Machine for which the operator needs several writes.
type operation struct {
	// spec is that of the Machine.
	spec string
	// from brings a Machine that runs to where the step begins; nil if that is there. fresh begins without the Machine.
	fresh bool
	from  func(p *place, m *v1alpha1.Machine)
	// do is what the user does.
	do func(p *place, m *v1alpha1.Machine)
	// done returns an error until the step is over.
	done func(p *place, m *v1alpha1.Machine) error
	// most is how many writes the step takes at most, events apart.
	most int
}

func edited(by func(*v1alpha1.MachineSpec)) func(*place, *v1alpha1.Machine) {
	return func(p *place, m *v1alpha1.Machine) { change(p, m, func(m *v1alpha1.Machine) { by(&m.Spec) }) }
}

func running(p *place, m *v1alpha1.Machine) error {
	if err := api.Get(p.Context(), key(m), m); err != nil {
		return err
	}
	if err := runs.shows(m); err != nil {
		return err
	}
	return p.placed(m)
}

// observed returns a condition: the status is about the present spec, and the VirtualMachine is as wanted.
func observed(has func(*kubevirtv1.VirtualMachineInstanceSpec) bool) func(*place, *v1alpha1.Machine) error {
	return func(p *place, m *v1alpha1.Machine) error {
		get(p, m.Name, m)
		if m.Status.Phase != v1alpha1.PhaseRunning || m.Status.ObservedGeneration != m.Generation {
			return errors.New(describe(m))
		}
		if vm := p.vm(m); !has(&vm.Spec.Template.Spec) {
			return fmt.Errorf("the VirtualMachine is %+v", vm.Spec.Template.Spec)
		}
		return nil
	}
}

// awaitsRestart returns a condition: as observed, and the change waits for a restart.
func awaitsRestart(has func(*kubevirtv1.VirtualMachineInstanceSpec) bool) func(*place, *v1alpha1.Machine) error {
	return func(p *place, m *v1alpha1.Machine) error {
		if err := observed(has)(p, m); err != nil {
			return err
		}
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAwaitingRestart)
		if c == nil || c.ObservedGeneration != m.Generation {
			return errors.New("no restart is awaited: " + describe(m))
		}
		return nil
	}
}

func stopped(p *place, m *v1alpha1.Machine) {
	p.Helper()
	if err := kube.StopMachine(p.Context(), key(m)); err != nil {
		p.Fatal(err)
	}
}

func isStopped(p *place, m *v1alpha1.Machine) error {
	if get(p, m.Name, m); m.Status.Phase != v1alpha1.PhaseStopped || m.Status.VMIName != "" {
		return errors.New(describe(m))
	}
	return nil
}

// operations are the steps of the plan's §7. What a user does to the guest, the operator only reports.
var operations = map[string]operation{
	"create": {spec: "{template: small, cloudInit: {secretRef: {name: data}}, networks: [{name: eth0, networkName: front}]}", fresh: true, done: running, most: 16},
	"sockets": {spec: "{template: small}", do: edited(func(s *v1alpha1.MachineSpec) { s.Resources.CPU.Sockets = 2 }), most: 4,
		done: observed(func(s *kubevirtv1.VirtualMachineInstanceSpec) bool { return s.Domain.CPU.Sockets == 2 })},
	"disk": {spec: "{template: small}", do: edited(func(s *v1alpha1.MachineSpec) { s.Disks = []v1alpha1.Disk{{Name: "data", Size: "1Gi"}} }), most: 8,
		done: awaitsRestart(func(s *kubevirtv1.VirtualMachineInstanceSpec) bool { return len(s.Volumes) == 2 })},
	"network": {spec: "{template: small, networks: [{name: eth0, networkName: front}]}", most: 8,
		do:   edited(func(s *v1alpha1.MachineSpec) { s.Networks[0].NetworkName = "back" }),
		done: awaitsRestart(func(s *kubevirtv1.VirtualMachineInstanceSpec) bool { return s.Networks[0].Multus.NetworkName == "back" })},
	"stop": {spec: "{template: small}", do: stopped, done: isStopped, most: 4},
	"start": {spec: "{template: small}", from: (*place).stop, most: 5, done: running, do: func(p *place, m *v1alpha1.Machine) {
		if err := kube.StartMachine(p.Context(), key(m)); err != nil {
			p.Fatal(err)
		}
	}},
	"delete": {spec: "{template: small, cloudInit: {secretRef: {name: data}}, networks: [{name: eth0, networkName: front}]}", most: 8,
		do: func(p *place, m *v1alpha1.Machine) { p.delete(m) }, done: func(_ *place, m *v1alpha1.Machine) error { return gone(m) }},
}

// TestMachinesSurviveACrashAtEveryWrite: after a crash at any write, and a restart, a Machine and its objects are as
// without it.
func TestMachinesSurviveACrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	needKubeVirt(t)
	for name, o := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.survivesCrashes(t, name)
		})
	}
}

// survivesCrashes goes through the step without a crash, and then with one at each of its writes.
func (o operation) survivesCrashes(t *testing.T, name string) {
	t.Helper()
	calm := newCrashPlace(t)
	calm.begin(o)
	calm.operator = calm.serve()
	calm.until(calm.operator.ready)
	began := time.Now()
	calm.act(o)
	calm.until(func() error { return o.done(calm, calm.it()) })
	more := slowness(began)
	calm.settles()
	writes := calm.writes()
	calm.since(0).within(t, name, o.most+more, 3)
	want := calm.dump()
	calm.release()
	for k := 1; k <= writes; k++ {
		t.Run(fmt.Sprintf("write %d", k), func(t *testing.T) {
			t.Parallel()
			p := newCrashPlace(t)
			p.begin(o)
			p.crashAt(o, k, want)
			p.release()
		})
	}
}

// writes returns how many writes of the operator there were about the namespace, with events.
func (p *place) writes() (n int) {
	for _, r := range p.operator.Requests.Of(p.namespace) {
		if r.Write() {
			n++
		}
	}
	return n
}

// crashAt takes a Machine through a step with an operator that crashes at the k-th write, and another one. The last writes
// may not come, because some depend on how fast others are: then the step is over.
func (p *place) crashAt(o operation, k int, want []string) {
	p.Helper()
	crash := &lab.Crash{K: k}
	first, err := start(wrapped(crash.Transport), confined(p.namespace))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = first.close() }) // it has crashed
	p.operator = first
	p.until(func() error {
		if crash.Crashed() {
			return nil
		}
		return first.ready()
	})
	p.act(o)
	p.until(func() error {
		if crash.Crashed() {
			return nil
		}
		return o.done(p, p.it())
	})
	_ = first.close()
	p.operator = p.serve()
	p.until(func() error { return o.done(p, p.it()) })
	p.until(func() error {
		if diff := cmp.Diff(want, p.dump()); diff != "" {
			return fmt.Errorf("not as without a crash (-calm +crashed):\n%s", diff)
		}
		return nil
	})
}

// it returns the declared Machine of a place.
func (p *place) it() *v1alpha1.Machine { return &v1alpha1.Machine{ObjectMeta: metaIn(p, "vm")} }

// begin brings the Machine to where the step begins, without an operator in the end.
func (p *place) begin(o operation) {
	p.Helper()
	if o.fresh {
		return
	}
	p.operator = p.serve()
	p.declare(o)
	p.until(func() error { return running(p, p.it()) })
	if o.from != nil {
		o.from(p, p.it())
	}
	p.settles()
	p.operator.stop(p.T)
}

func (p *place) declare(o operation) {
	p.Helper()
	m := &v1alpha1.Machine{}
	p.yaml("metadata: {name: vm}\nspec: "+o.spec, m)
	p.create(m)
}

// act does what the user does.
func (p *place) act(o operation) {
	p.Helper()
	if o.fresh {
		p.declare(o)
		return
	}
	o.do(p, p.it())
}

// release deletes the Machine while the last operator runs.
func (p *place) release() {
	p.Helper()
	if gone(p.it()) != nil {
		p.delete(p.it())
	}
	p.until(func() error { return gone(p.it()) })
}

// newCrashPlace returns a place with what the Machines of the operations refer to.
func newCrashPlace(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	p.create(&corev1.Secret{ObjectMeta: metaIn(p, "data"), StringData: map[string]string{"userdata": "#cloud-config\n"}})
	p.network("front", "{vlan: 5}")
	p.network("back", "{vlan: 6}")
	return p
}

// masks are what differs between two Machines of one kind.
var masks = []struct {
	of *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`"?([0-9a-f]{2}:){5}[0-9a-f]{2}"?`), "MAC"},
	{regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]+Z`), "TIME"},
	{regexp.MustCompile(`\b10\.[0-9]+\.[0-9]+\.[0-9]+\b`), "ADDRESS"},
	{regexp.MustCompile(`\bnode-[0-9]+\b`), "NODE"},
	{regexp.MustCompile("(approve-restart=)[0-9a-f]+"), "${1}APPROVAL"},
	{regexp.MustCompile(`(?m)^( *)(resourceVersion|observedGeneration|generation): .*$`), "$1$2: N"},
}

// dump returns what the operator has made of a Machine, and its status, without what differs between Machines.
func (p *place) dump() (lines []string) {
	p.Helper()
	m := p.it()
	add := func(what string, parts ...any) {
		text, err := yaml.Marshal(parts)
		if err != nil {
			p.Fatal(err)
		}
		masked := strings.ReplaceAll(string(text), p.namespace, "NAMESPACE")
		for _, mask := range masks {
			masked = mask.of.ReplaceAllString(masked, mask.by)
		}
		lines = append(lines, what)
		lines = append(lines, strings.Split(masked, "\n")...)
	}
	now := &v1alpha1.Machine{}
	if err := client.IgnoreNotFound(read(p, m.Name, now)); err != nil {
		p.Fatal(err)
	}
	byType := func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) } // they are a set
	slices.SortFunc(now.Status.Conditions, byType)
	add("Machine", now.Finalizers, now.Spec, now.Status)
	vm := &kubevirtv1.VirtualMachine{}
	if err := client.IgnoreNotFound(read(p, m.Name, vm)); err != nil {
		p.Fatal(err)
	}
	add("VirtualMachine", vm.Labels, vm.OwnerReferences, vm.Spec)
	claims, secrets, networks := &corev1.PersistentVolumeClaimList{}, &corev1.SecretList{}, &v1alpha1.NetworkConfigurationList{}
	for _, list := range []client.ObjectList{claims, secrets, networks} {
		if err := api.List(p.Context(), list, inNamespace(p)); err != nil {
			p.Fatal(err)
		}
	}
	for _, c := range claims.Items {
		add("claim "+c.Name, c.Labels, c.OwnerReferences, c.Spec.Resources, c.DeletionTimestamp != nil)
	}
	for _, s := range secrets.Items {
		add("Secret "+s.Name, s.Labels, s.OwnerReferences, slices.Sorted(maps.Keys(s.Data)))
	}
	for _, n := range networks.Items {
		slices.SortFunc(n.Status.Conditions, byType)
		add("NetworkConfiguration "+n.Name, n.Status)
	}
	return lines
}
