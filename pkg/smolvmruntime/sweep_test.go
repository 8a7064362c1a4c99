package smolvmruntime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// makeVM makes a SmolVM that has a node, if one is given, and returns the owner of its machine.
func makeVM(t *testing.T, c client.Client, name, node string) *api.Owner {
	t.Helper()
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.SmolVMSpec{Image: "alpine"}}
	if err := c.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), vm) })
	if node != "" {
		vm.Status.NodeName = node
		if err := c.Status().Update(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	return &api.Owner{Cluster: clusterUID(t, c), Namespace: "default", Name: name, UID: string(vm.UID)}
}

func clusterUID(t *testing.T, c client.Client) string {
	t.Helper()
	system := &corev1.Namespace{}
	eventually(t, "the API server has made kube-system", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, system) == nil
	})
	return string(system.UID)
}

// sweeping is a sweeper over a fake.
type sweeping struct {
	sweeper *sweeper
	fake    *fake
	sent    *requests
	found   int
	kept    int
	deleted int
}

func newSweeping(t *testing.T, policy OrphanPolicy) *sweeping {
	t.Helper()
	s := &sweeping{fake: newFake(), found: -1, kept: -1}
	socket := socketFor(t)
	serveFake(t, s.fake, socket)
	var c client.Client
	c, s.sent = counted(t)
	s.sweeper = &sweeper{
		client: c, smolvm: clientOf(t, socket), node: "here", policy: policy, log: quiet,
		found: func(orphans, kept int) { s.found, s.kept = orphans, kept }, deleted: func() { s.deleted++ },
	}
	return s
}

// fill makes machines of all kinds and returns the names of those that are orphans.
func (s *sweeping) fill(t *testing.T, c client.Client) []string {
	t.Helper()
	owned, elsewhere, unbound := makeVM(t, c, "owned", "here"), makeVM(t, c, "elsewhere", "there"), makeVM(t, c, "unbound", "")
	other := func(o *api.Owner, change func(*api.Owner)) *api.Owner {
		changed := *o
		change(&changed)
		return &changed
	}
	s.fake.put(
		api.Machine{Name: "k8s-owned", Owner: owned}, api.Machine{Name: "k8s-unbound", Owner: unbound}, api.Machine{Name: "by-hand"}, api.Machine{Name: "k8s-by-hand"},
		api.Machine{Name: "k8s-other-cluster", Owner: other(owned, func(o *api.Owner) { o.Cluster, o.UID = "other", "gone" })},
		api.Machine{Name: "k8s-elsewhere", Owner: elsewhere},
		api.Machine{Name: "k8s-replaced", Owner: other(owned, func(o *api.Owner) { o.UID = "gone" })},
		api.Machine{Name: "k8s-gone", Owner: other(owned, func(o *api.Owner) { o.Name, o.UID = "gone", "gone" })},
		api.Machine{Name: "k8s-renamed", Owner: other(owned, func(o *api.Owner) { o.Name = "gone" })},
	)
	return []string{"k8s-gone"}
}

func TestOrphansAreDeletedByPolicy(t *testing.T) {
	for policy, test := range map[OrphanPolicy]struct {
		found, kept int
		goes        bool
	}{OrphansReport: {2, 2, false}, OrphansDelete: {2, 2, true}, OrphansNone: {-1, -1, false}} {
		t.Run(string(policy), func(t *testing.T) {
			s := newSweeping(t, policy)
			orphans := s.fill(t, direct(t))
			now := time.Now()
			for _, after := range []time.Duration{0, 5 * time.Minute, orphanGrace - time.Second} {
				if err := s.sweeper.Sweep(t.Context(), now.Add(after)); err != nil {
					t.Fatal(err)
				}
				if s.found != test.found || s.kept != test.kept || len(s.fake.deleted) > 0 {
					t.Fatalf("after %s: %d orphans, %d kept, %v deleted", after, s.found, s.kept, s.fake.deleted)
				}
			}
			if err := s.sweeper.Sweep(t.Context(), now.Add(orphanGrace)); err != nil {
				t.Fatal(err)
			}
			if !test.goes {
				orphans = nil
			}
			if slices.Sort(s.fake.deleted); !slices.Equal(s.fake.deleted, orphans) || s.deleted != len(orphans) {
				t.Errorf("%v are deleted, %d counted", s.fake.deleted, s.deleted)
			}
			if writes := s.sent.take(); len(writes) > 0 {
				t.Errorf("the API server was written to: %v", writes)
			}
		})
	}
}

// TestNothingIsDeletedWithoutCertainty: an API server or a smolvm that does not answer leaves machines alone.
func TestNothingIsDeletedWithoutCertainty(t *testing.T) {
	s := newSweeping(t, OrphansDelete)
	s.fill(t, direct(t))
	now := time.Now()
	s.sent.set(context.DeadlineExceeded)
	if err := s.sweeper.Sweep(t.Context(), now); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the cluster is known: %v", err)
	}
	s.sent.set(nil)
	if err := s.sweeper.Sweep(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	s.sent.set(context.DeadlineExceeded)
	if err := s.sweeper.Sweep(t.Context(), now.Add(time.Hour)); err == nil || len(s.fake.deleted) > 0 {
		t.Errorf("%v are deleted: %v", s.fake.deleted, err)
	}
}

// TestAMachineThatIsAnotherByThen is left alone.
func TestAMachineThatIsAnotherByThen(t *testing.T) {
	s := newSweeping(t, OrphansDelete)
	admin := direct(t)
	owner := makeVM(t, admin, "late", "here")
	gone := *owner
	gone.UID = "gone"
	old := api.Machine{Name: "k8s-late", Owner: &gone, CreatedAt: 1}
	old.Owner.Name = "late-gone"
	s.sweeper.cluster = owner.Cluster
	for sentence, now := range map[string]api.Machine{
		"made again for the same SmolVM": {Name: "k8s-late", Owner: &gone, CreatedAt: 2},
		"made for a SmolVM that is":      {Name: "k8s-late", Owner: owner, CreatedAt: 1},
		"made by hand":                   {Name: "k8s-late", CreatedAt: 1},
		"gone":                           {Name: "another"},
	} {
		s.fake.machines = map[string]api.Machine{}
		s.fake.put(now)
		if err := s.sweeper.delete(t.Context(), &old, nil); err != nil || len(s.fake.deleted) > 0 {
			t.Errorf("%s: %v are deleted: %v", sentence, s.fake.deleted, err)
		}
	}
	s.fake.put(old)
	if err := s.sweeper.delete(t.Context(), &old, nil); err != nil || len(s.fake.deleted) != 1 {
		t.Errorf("%v are deleted: %v", s.fake.deleted, err)
	}
}

// refusing is a reader that has an error, or another cluster, when the test says so.
type refusing struct {
	client.Reader

	list    error
	cluster string
}

func (r *refusing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.list != nil {
		return r.list
	}
	return r.Reader.List(ctx, list, options...)
}

func (r *refusing) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, o, options...)
	if _, ok := o.(*corev1.Namespace); ok && r.cluster != "" {
		o.SetUID(uid(r.cluster))
	}
	return err
}

// TestARoundOfDeletionIsForAnAPIServerThatKnows: it must list SmolVMs, and be that of the cluster.
func TestARoundOfDeletionIsForAnAPIServerThatKnows(t *testing.T) {
	s := newSweeping(t, OrphansDelete)
	s.fill(t, direct(t))
	reader := &refusing{Reader: s.sweeper.client, list: context.DeadlineExceeded}
	s.sweeper.client = reader
	now := time.Now()
	if err := s.sweeper.Sweep(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if err := s.sweeper.Sweep(t.Context(), now.Add(orphanGrace)); !errors.Is(err, context.DeadlineExceeded) || len(s.fake.deleted) > 0 {
		t.Errorf("without a list, %v are deleted: %v", s.fake.deleted, err)
	}
	reader.list, reader.cluster = nil, "restored"
	if err := s.sweeper.deleteAll(t.Context(), []api.Machine{s.fake.machines["k8s-gone"]}); err == nil || len(s.fake.deleted) > 0 {
		t.Errorf("in another cluster, %v are deleted: %v", s.fake.deleted, err)
	}
	if err := s.sweeper.Sweep(t.Context(), now.Add(orphanGrace)); err != nil || s.found != 0 {
		t.Errorf("machines of another cluster are judged: %d orphans, %v", s.found, err)
	}
	reader.cluster = ""
	if err := s.sweeper.Sweep(t.Context(), now.Add(orphanGrace)); err != nil || s.found != 2 || len(s.fake.deleted) > 0 {
		t.Errorf("what was seen before counts: %v are deleted: %v", s.fake.deleted, err)
	}
}

// TestAKindThatIsNotServed is no proof that a SmolVM is gone: here the API server itself answers.
func TestAKindThatIsNotServed(t *testing.T) {
	err := direct(t).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, &v1alpha1.SmolVM{})
	if !isMissing(err, "x") {
		t.Errorf("a SmolVM that is missing: %v", err)
	}
	unserved := rest.CopyConfig(served(t))
	unserved.APIPath, unserved.ContentConfig = "/apis", rest.ContentConfig{
		GroupVersion: &schema.GroupVersion{Group: v1alpha1.GroupVersion.Group, Version: "v9"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}
	c, err := rest.RESTClientFor(unserved)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Get().Namespace("default").Resource(resourceOfVMs).Name("x").Do(t.Context()).Error()
	if !apierrors.IsNotFound(err) || isMissing(err, "x") {
		t.Errorf("a kind that is not served: %v", err)
	}
}

// TestOrphansWithTheRightsOfAnAgent: the rights that the page lists are enough to delete.
func TestOrphansWithTheRightsOfAnAgent(t *testing.T) {
	s := newSweeping(t, OrphansDelete)
	orphans := s.fill(t, direct(t))
	s.sweeper.client = asRuntime(t)
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(0, 0).Add(orphanGrace)} {
		if err := s.sweeper.Sweep(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(s.fake.deleted, orphans) {
		t.Errorf("%v are deleted", s.fake.deleted)
	}
}
