package machines_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// place is the namespace of one test.
type place struct {
	*testing.T
	namespace string
	operator  *operator
}

// newPlace makes a namespace. At the end of the test its Machines are deleted and gone, while the operator still runs: the
// deletion is part of every test.
func newPlace(t *testing.T) *place {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "machines-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	p := &place{T: t, namespace: namespace.Name}
	t.Cleanup(func() {
		// What is in the namespace goes in the background.
		if err := api.Delete(context.Background(), namespace); err != nil {
			t.Error(err)
		}
	})
	return p
}

// yaml decodes an object strictly into the test's namespace.
func (p *place) yaml(text string, into client.Object) {
	p.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		p.Fatalf("decoding %s: %s", text, err)
	}
	if into.GetNamespace() == "" {
		into.SetNamespace(p.namespace)
	}
}

// machine creates a Machine with a spec in YAML, and deletes it at the end of the test.
func (p *place) machine(name, spec string, changes ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	p.Helper()
	m := &v1alpha1.Machine{}
	p.yaml(fmt.Sprintf("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: %s}\nspec: %s", name, spec), m)
	for _, change := range changes {
		change(m)
	}
	p.create(m)
	p.Cleanup(func() { p.end(m) })
	return m
}

// end deletes a Machine and waits until it is gone.
func (p *place) end(m *v1alpha1.Machine) {
	kube.Handler().Forget(key(m))
	if err := client.IgnoreNotFound(api.Delete(context.Background(), m.DeepCopy())); err != nil {
		p.Error(err)
	}
	if err := wait(patience, glance, func() error { return gone(m.DeepCopy()) }); err != nil {
		p.Errorf("deleting the Machine: %s", err)
	}
}

// network creates a NetworkConfiguration with a spec in YAML.
func (p *place) network(name, spec string) *v1alpha1.NetworkConfiguration {
	p.Helper()
	n := &v1alpha1.NetworkConfiguration{}
	p.yaml(fmt.Sprintf("apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: %s}\nspec: %s", name, spec), n)
	p.create(n)
	return n
}

func (p *place) create(object client.Object) {
	p.Helper()
	if err := api.Create(context.Background(), object); err != nil {
		p.Fatalf("creating %T %s: %s", object, object.GetName(), err)
	}
}

func (p *place) delete(object client.Object) {
	p.Helper()
	if err := api.Delete(context.Background(), object.DeepCopyObject().(client.Object)); err != nil {
		p.Fatalf("deleting %T %s: %s", object, object.GetName(), err)
	}
}

// get reads an object of the test's namespace.
func get[T client.Object](p *place, name string, into T) T {
	p.Helper()
	if err := read(p, name, into); err != nil {
		p.Fatalf("reading %T %s: %s", into, name, err)
	}
	return into
}

// read is get for objects that may be missing. Those of a kind that is not installed are missing, too.
func read(p *place, name string, into client.Object) error {
	err := api.Get(context.Background(), types.NamespacedName{Namespace: p.namespace, Name: name}, into)
	if meta.IsNoMatchError(err) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, name)
	}
	return err
}

// change changes a stored object, whatever others do to it at the same time.
func change[T client.Object](p *place, object T, by func(T)) {
	p.Helper()
	p.until(func() error {
		if err := api.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		by(object)
		return api.Update(context.Background(), object)
	})
}

// until waits until a condition returns no error.
func (p *place) until(condition func() error) {
	p.Helper()
	if err := wait(patience, glance, condition); err != nil {
		p.Fatal(err)
	}
}

// longUntil is until for what takes KubeVirt minutes.
func (p *place) longUntil(condition func() error) {
	p.Helper()
	if err := wait(longPatience, longGlance, condition); err != nil {
		p.Fatal(err)
	}
}

// wait waits for at most a time until a condition returns no error, and returns the last one.
func wait(most, pause time.Duration, condition func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return poll.Until(ctx, pause, nil, func(context.Context) error { return condition() })
}

// key returns the name of an object.
func key(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// gone returns an error while an object exists.
func gone(object client.Object) error {
	err := api.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	text := ""
	if m, ok := object.(*v1alpha1.Machine); ok {
		text = describe(m)
	}
	return fmt.Errorf("%T %s is still there with finalizers %v %s", object, object.GetName(), object.GetFinalizers(), text)
}

// describe returns what the status of a Machine says.
func describe(m *v1alpha1.Machine) string {
	var parts []string
	for _, c := range m.Status.Conditions {
		parts = append(parts, fmt.Sprintf("%s=%s %s %q", c.Type, c.Status, c.Reason, c.Message))
	}
	return fmt.Sprintf("%s is %q (%s), failure %q: %s", m.Name, m.Status.Phase, m.Status.State, m.Status.FailureReason, strings.Join(parts, ", "))
}

// want is what the status of a Machine has to say. Empty fields do not matter.
type want struct {
	phase string
	// ready is the reason of Ready, which is True for the reason Running alone.
	ready string
	// others are the other conditions, as "StorageReady=False/PVCPending".
	others []string
	// says is a part of the message of Ready.
	says string
}

var runs = want{phase: v1alpha1.PhaseRunning, ready: v1alpha1.ReasonRunning, others: []string{
	"VirtualMachineReady=True/VMCreated", "StorageReady=True/PVCBound", "NetworkReady=True/NetworkConfigured",
}}

// shows returns an error unless the status of a Machine says what is wanted, about the present spec.
func (w want) shows(m *v1alpha1.Machine) error {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	status := metav1.ConditionFalse
	switch w.ready {
	case v1alpha1.ReasonRunning:
		status = metav1.ConditionTrue
	case v1alpha1.ReasonNodeUnreachable:
		status = metav1.ConditionUnknown
	}
	ok := m.Status.ObservedGeneration == m.Generation && ready != nil && (w.phase == "" || m.Status.Phase == w.phase) &&
		(w.ready == "" || ready.Reason == w.ready && ready.Status == status) && strings.Contains(ready.Message, w.says)
	for _, other := range w.others {
		ok = ok && slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
			return other == fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)
		})
	}
	if ok {
		return nil
	}
	return fmt.Errorf("%s; generation %d of %d; want %+v", describe(m), m.Status.ObservedGeneration, m.Generation, w)
}

// await waits until the status of a Machine says what is wanted, and reads the Machine.
func (p *place) await(m *v1alpha1.Machine, w want) {
	p.Helper()
	err := wait(patience, glance, func() error {
		if err := api.Get(context.Background(), key(m), m); err != nil {
			return err
		}
		return w.shows(m)
	})
	if err != nil {
		p.Fatalf("%s; %s", err, p.guest(m))
	}
}

// guest says what KubeVirt says about a Machine.
func (p *place) guest(m *v1alpha1.Machine) string {
	vm, vmi := &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{}
	if err := errors.Join(client.IgnoreNotFound(read(p, m.Name, vm)), client.IgnoreNotFound(read(p, m.Name, vmi))); err != nil {
		return err.Error()
	}
	var conditions []string
	for _, c := range vmi.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return fmt.Sprintf("KubeVirt: %q, guest %q %v", vm.Status.PrintableStatus, vmi.Status.Phase, conditions)
}

// stays fails the test if the status of a Machine changes, or any object of it, within three intervals, and if the
// operator asks the API server for anything about the namespace. It waits before until all is done.
func (p *place) stays(machines ...*v1alpha1.Machine) {
	p.Helper()
	var versions []string
	p.until(func() error { // KubeVirt may be at work, too
		before := p.versions(machines)
		p.settles()
		if versions = p.versions(machines); !slices.Equal(versions, before) {
			return fmt.Errorf("something still changes: %v, then %v", before, versions)
		}
		return nil
	})
	count := len(p.operator.Requests.Of(p.namespace))
	end := time.Now().Add(3 * interval)
	for time.Now().Before(end) {
		time.Sleep(glance)
		if asked := p.operator.Requests.Of(p.namespace); len(asked) > count {
			p.Fatalf("the operator asks the API server while nothing happens: %v", asked[count:])
		}
	}
	if now := p.versions(machines); !slices.Equal(now, versions) {
		p.Errorf("something changes while nothing happens: %v, then %v", versions, now)
	}
}

// settles waits until the operator has asked nothing about the namespace during more than one interval.
func (p *place) settles() {
	p.Helper()
	since := time.Now()
	p.until(func() error { return p.quiet(since) })
}

// quiet returns an error unless a moment, and the operator's last request about the namespace, were more than an interval
// ago.
func (p *place) quiet(since time.Time) error {
	last := "nothing"
	if all := p.operator.Requests.Of(p.namespace); len(all) > 0 && all[len(all)-1].At.After(since) {
		last, since = all[len(all)-1].String(), all[len(all)-1].At
	}
	if time.Since(since) < interval*3/2 {
		return fmt.Errorf("the operator may be at work still; its last request is %s", last)
	}
	return nil
}

// versions returns the resource versions of Machines and generations of their VirtualMachines. KubeVirt itself writes
// statuses.
func (p *place) versions(machines []*v1alpha1.Machine) []string {
	p.Helper()
	var all []string
	for _, m := range machines {
		get(p, m.Name, m)
		vm := &kubevirtv1.VirtualMachine{}
		if err := client.IgnoreNotFound(read(p, m.Name, vm)); err != nil {
			p.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %d", m.Name, m.ResourceVersion, vm.Generation))
	}
	return all
}

// intervals waits for some intervals of the operator, in which it reconciles each Machine, and returns how long that was.
func (p *place) intervals(n int) time.Duration {
	began := time.Now()
	time.Sleep(time.Duration(n) * interval)
	return time.Since(began)
}

// vm reads the VirtualMachine of a Machine.
func (p *place) vm(m *v1alpha1.Machine) *kubevirtv1.VirtualMachine {
	p.Helper()
	return get(p, m.Name, &kubevirtv1.VirtualMachine{})
}

// vmi reads the guest of a Machine.
func (p *place) vmi(m *v1alpha1.Machine) *kubevirtv1.VirtualMachineInstance {
	p.Helper()
	return get(p, m.Name, &kubevirtv1.VirtualMachineInstance{})
}

// claims returns the names of the claims of a Machine, by its label.
func (p *place) claims(m *v1alpha1.Machine) []string {
	p.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	err := api.List(context.Background(), list, client.InNamespace(p.namespace), client.MatchingLabels{v1alpha1.LabelMachine: m.Name})
	if err != nil {
		p.Fatal(err)
	}
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// nothing returns an error if a Machine has a VirtualMachine or claims.
func (p *place) nothing(m *v1alpha1.Machine) error {
	if claims := p.claims(m); len(claims) > 0 {
		return fmt.Errorf("there are claims %v", claims)
	}
	if err := read(p, m.Name, &kubevirtv1.VirtualMachine{}); !apierrors.IsNotFound(err) {
		return errors.Join(errors.New("there is a VirtualMachine"), err)
	}
	return nil
}

// metaIn returns the metadata of an object of the test's namespace.
func metaIn(p *place, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.namespace, Name: name}
}

// empty returns a guest and a VirtualMachine of the test's namespace without a name.
func (p *place) empty() (*kubevirtv1.VirtualMachineInstance, *kubevirtv1.VirtualMachine) {
	return &kubevirtv1.VirtualMachineInstance{ObjectMeta: metaIn(p, "")}, &kubevirtv1.VirtualMachine{ObjectMeta: metaIn(p, "")}
}
