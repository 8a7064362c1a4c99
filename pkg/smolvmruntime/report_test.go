package smolvmruntime

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// requests counts what is asked of the API server, and can refuse it.
type requests struct {
	mu     sync.Mutex
	writes []string
	reads  int
	fail   error
}

func (r *requests) write(what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, what)
	return r.fail
}

// take returns the writes since the last call.
func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.writes
	r.writes = nil
	return taken
}

func (r *requests) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

// direct returns a client as the agent has it.
func direct(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := NewClient(served(t))
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.NewWithWatch(served(t), client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// counted returns a client whose requests are counted.
func counted(t *testing.T) (client.Client, *requests) {
	t.Helper()
	r := &requests{}
	name := func(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }
	return interceptor.NewClient(direct(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			r.mu.Lock()
			r.reads++
			err := r.fail
			r.mu.Unlock()
			if err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := r.write("create " + name(o)); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := r.write("patch " + name(o)); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := r.write("patch " + name(o) + " " + sub); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	}), r
}

// clock is set by a test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// makeNode makes a Node that is ready, and removes it with its SmolVMNode at the end.
func makeNode(t *testing.T, c client.Client, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a", "kubernetes.io/hostname": name}}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		_ = c.Delete(context.Background(), &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
	setReady(t, c, node, corev1.ConditionTrue)
	return node
}

func setReady(t *testing.T, c client.Client, node *corev1.Node, is corev1.ConditionStatus) {
	t.Helper()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7500m"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// reporting is an agent whose looks the test takes.
type reporting struct {
	agent *Agent
	fake  *fake
	clock *clock
	sent  *requests
	// admin is a client that is not counted.
	admin client.Client
	stop  func()
}

func newReporting(t *testing.T, name string, change func(*Settings)) *reporting {
	t.Helper()
	s := Settings{
		Node: name, PodName: "pod", PodNamespace: "default", PodIP: "192.0.2.7", DaemonSet: "smolvm-runtime", Version: "1.2.3", BindAddress: "127.0.0.1:0",
		Socket: socketFor(t), State: t.TempDir(), ReportInterval: DefaultReportInterval, Orphans: OrphansNone, InsecureNoAuth: true,
	}
	if change != nil {
		change(&s)
	}
	c, sent := counted(t)
	agent, err := New(s, c, &lines{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	r := &reporting{agent: agent, fake: newFake(), clock: &clock{at: time.Now().Truncate(time.Second)}, sent: sent, admin: direct(t)}
	r.stop = serveFake(t, r.fake, s.Socket)
	agent.now = r.clock.now
	agent.watcher = newWatcher(agent, 9443)
	return r
}

// look lets some time pass, looks, and returns the writes.
func (r *reporting) look(t *testing.T, after time.Duration) []string {
	t.Helper()
	r.clock.pass(after)
	r.agent.watcher.Look(t.Context())
	return r.sent.take()
}

func (r *reporting) read(t *testing.T) *v1alpha1.SmolVMNode {
	t.Helper()
	node := &v1alpha1.SmolVMNode{}
	if err := r.admin.Get(t.Context(), client.ObjectKey{Name: r.agent.settings.Node}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// says returns the conditions as text.
func says(n *v1alpha1.SmolVMNode) string {
	var all []string
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.NodeConditionKVM, v1alpha1.ConditionRuntimeReady, v1alpha1.NodeConditionSchedulable} {
		c := meta.FindStatusCondition(n.Status.Conditions, kind)
		if c == nil {
			c = &metav1.Condition{Type: kind}
		}
		all = append(all, fmt.Sprintf("%s=%s/%s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(all, "\n")
}

const wellNode = `Ready=True/Reported runtime healthy
KVMAvailable=True/Observed KVM device availability observed
RuntimeReady=True/Reported runtime healthy
Schedulable=True/Reported node is schedulable for SmolVM`

func TestTheFirstReport(t *testing.T) {
	r := newReporting(t, "first", nil)
	node := makeNode(t, r.admin, "first")
	if writes := r.look(t, 0); len(writes) != 2 {
		t.Errorf("it took %v", writes)
	}
	got := r.read(t)
	if got.Labels["zone"] != "a" || says(got) != wellNode {
		t.Errorf("%v\n%s", got.Labels, says(got))
	}
	s := got.Status
	if s.NodeUID != node.UID || s.RuntimeVersion != "1.2.3" || s.ProtocolVersion != "v1alpha1" || s.Backend != fakeBackend || s.Accelerator != "kvm" ||
		!s.HeartbeatTime.Time.Equal(r.clock.now()) || len(s.Features) != 1 {
		t.Errorf("%+v", s)
	}
	if e := s.Endpoint; e.PodName != "pod" || e.PodNamespace != "default" || e.PodIP != "192.0.2.7" || e.Port != 9443 || e.Certificate != r.agent.identity.Published() {
		t.Errorf("%+v", e)
	}
	if a := s.Allocatable; a.CPUs != 8 || a.MemoryMiB != 8192 || a.StorageGiB <= 0 {
		t.Errorf("%+v", a)
	}
}

// TestAQuietNodeWritesOnceAMinute looks for half an hour of a clock.
func TestAQuietNodeWritesOnceAMinute(t *testing.T) {
	r := newReporting(t, "quiet", nil)
	makeNode(t, r.admin, "quiet")
	r.look(t, 0)
	r.agent.owner.known = "seen" // the DaemonSet is looked for until it is seen
	r.sent.reads = 0
	first := r.read(t)
	const minutes = 30
	var writes []string
	for range minutes * 12 {
		writes = append(writes, r.look(t, 5*time.Second)...)
	}
	if len(writes) != minutes {
		t.Errorf("%d writes in %d minutes", len(writes), minutes)
	}
	for _, write := range writes {
		if write != "patch *v1alpha1.SmolVMNode quiet status" {
			t.Errorf("another write: %s", write)
		}
	}
	if r.sent.reads > 3*minutes {
		t.Errorf("%d reads in %d minutes", r.sent.reads, minutes)
	}
	last := r.read(t)
	if last.Generation != first.Generation || !last.Status.HeartbeatTime.Time.Equal(r.clock.now()) {
		t.Errorf("the last report is of %s at %s", last.Status.HeartbeatTime, r.clock.now())
	}
	for i, c := range last.Status.Conditions {
		if !c.LastTransitionTime.Equal(&first.Status.Conditions[i].LastTransitionTime) {
			t.Errorf("%s has changed its time", c.Type)
		}
	}
	t.Logf("%d writes and %d reads in %d minutes", len(writes), r.sent.reads, minutes)
}

func TestNewsAreReportedAtOnce(t *testing.T) {
	r := newReporting(t, "news", func(s *Settings) { s.AllowEmulation = true })
	node := makeNode(t, r.admin, "news")
	r.look(t, 0)
	expect := func(what string, writes []string, want int, texts ...string) {
		t.Helper()
		got := r.read(t)
		if len(writes) != want {
			t.Errorf("%s: %v", what, writes)
		}
		for _, text := range texts {
			if !strings.Contains(says(got), text) {
				t.Errorf("%s: there is no %q in\n%s", what, text, says(got))
			}
		}
	}
	expect("nothing", r.look(t, 5*time.Second), 0, wellNode)
	r.fake.mu.Lock()
	r.fake.health.Accelerator, r.fake.health.AcceleratorReason = "tcg", "/dev/kvm is missing"
	r.fake.mu.Unlock()
	expect("KVM is lost", r.look(t, 5*time.Second), 1, "Ready=True/Reported runtime healthy; machines are emulated", "KVMAvailable=False/Observed KVM device availability observed: /dev/kvm is missing", "Schedulable=True")
	if a := r.read(t).Status.Accelerator; a != v1alpha1.AcceleratorTCG {
		t.Errorf("the accelerator is %s", a)
	}
	setReady(t, r.admin, node, corev1.ConditionFalse)
	expect("the Node is not ready", r.look(t, nodeInterval), 1, "Ready=True", "Schedulable=False/Reported node is not schedulable for SmolVM: the Node is not ready")
	node.Labels["zone"] = "b"
	delete(node.Labels, "kubernetes.io/hostname")
	if err := r.admin.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	labeled := r.read(t)
	labeled.Labels["by-hand"] = "x"
	if err := r.admin.Update(t.Context(), labeled); err != nil {
		t.Fatal(err)
	}
	expect("the Node has other labels", r.look(t, nodeInterval), 2)
	if l := r.read(t).Labels; l["zone"] != "b" || l["by-hand"] != "x" || len(l) != 2 {
		t.Errorf("the labels are %v", l)
	}
	r.stop()
	expect("smolvm is gone", r.look(t, 5*time.Second), 1, "RuntimeReady=False/Reported smolvm socket unavailable (", "Schedulable=False")
	expect("it is still gone", r.look(t, 5*time.Second), 0)
	if err := r.admin.Delete(t.Context(), r.read(t)); err != nil {
		t.Fatal(err)
	}
	writes := r.look(t, time.Minute)
	expect("the SmolVMNode was deleted", writes, 3, "RuntimeReady=False")
}

// TestANodeThatCannotBeRead keeps what is known: labels and the UID.
func TestANodeThatCannotBeRead(t *testing.T) {
	r := newReporting(t, "lost", nil)
	node := makeNode(t, r.admin, "lost")
	r.look(t, 0)
	if err := r.admin.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r.look(t, nodeInterval)
	got := r.read(t)
	if got.Labels["zone"] != "a" || got.Status.NodeUID != node.UID || got.Status.Allocatable.CPUs != 8 || !strings.Contains(says(got), "Schedulable=False/Reported node is not schedulable for SmolVM: there is no Node lost") {
		t.Errorf("%v %s\n%s", got.Labels, got.Status.NodeUID, says(got))
	}
	// Another agent, which has never seen the Node, leaves them, too.
	again := newReporting(t, "lost", nil)
	again.look(t, 0)
	if got := again.read(t); got.Labels["zone"] != "a" || got.Status.NodeUID != node.UID {
		t.Errorf("%v %s", got.Labels, got.Status.NodeUID)
	}
	replaced := makeNode(t, r.admin, "lost")
	again.look(t, nodeInterval)
	if got := again.read(t); got.Status.NodeUID != replaced.UID {
		t.Errorf("the UID is %s", got.Status.NodeUID)
	}
}

// TestAnAPIServerThatDoesNotAnswer is asked less and less often, and told once it answers.
func TestAnAPIServerThatDoesNotAnswer(t *testing.T) {
	r := newReporting(t, "silent", nil)
	makeNode(t, r.admin, "silent")
	r.look(t, 0)
	r.sent.set(context.DeadlineExceeded)
	var writes []string
	for range 60 { // ten minutes
		writes = append(writes, r.look(t, 10*time.Second)...)
	}
	if len(writes) < 8 || len(writes) > 16 {
		t.Errorf("it was asked %d times", len(writes))
	}
	r.sent.set(nil)
	if got := r.look(t, lastRetry); len(got) != 1 || !r.read(t).Status.HeartbeatTime.Time.Equal(r.clock.now()) {
		t.Errorf("%v, the last report is of %s", got, r.read(t).Status.HeartbeatTime)
	}
}

// TestTransitionsOutliveTheAgent: a restart is no transition.
func TestTransitionsOutliveTheAgent(t *testing.T) {
	r := newReporting(t, "again", nil)
	makeNode(t, r.admin, "again")
	r.look(t, 0)
	before := r.read(t)
	again := newReporting(t, "again", nil)
	again.look(t, time.Hour)
	for i, c := range again.read(t).Status.Conditions {
		if !c.LastTransitionTime.Equal(&before.Status.Conditions[i].LastTransitionTime) {
			t.Errorf("%s changed at %s", c.Type, c.LastTransitionTime)
		}
	}
}

// TestARenewalIsPublished: the next certificate is served only after it was published.
func TestARenewalIsPublished(t *testing.T) {
	r := newReporting(t, "renew", nil)
	makeNode(t, r.admin, "renew")
	r.look(t, 0)
	first := r.read(t).Status.Endpoint.Certificate
	r.look(t, certificateLife)
	both := r.read(t).Status.Endpoint.Certificate
	if !strings.HasPrefix(both, first) || both == first {
		t.Error("the next certificate is not published")
	}
	r.look(t, overlap)
	if got := r.read(t).Status.Endpoint.Certificate; got != strings.TrimPrefix(both, first) {
		t.Error("the next certificate is not the one")
	}
}
