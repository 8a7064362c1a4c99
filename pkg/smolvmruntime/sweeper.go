package smolvmruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	resourceOfVMs = "smolvms"
	// listPage is how many SmolVMs one answer of the API server has.
	listPage = 500
)

// sweeper looks for orphans.
type sweeper struct {
	client client.Reader
	smolvm *api.Client
	node   string
	policy OrphanPolicy
	log    *slog.Logger
	// found gets how many orphans there are, and how many machines are kept that no SmolVM of this node has. deleted counts
	// orphans that were deleted.
	found   func(orphans, kept int)
	deleted func()

	cluster string
	seen    sightings
	// told has the machines that were logged, and why.
	told map[orphanKey]string
}

// judged is a machine that no SmolVM of this node has.
type judged struct {
	machine api.Machine
	what    verdict
	why     string
}

// Sweep looks once. An error means that nothing is known, so nothing is deleted.
func (s *sweeper) Sweep(ctx context.Context, now time.Time) error {
	if s.policy == OrphansNone {
		return nil
	}
	if err := s.findCluster(ctx); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	machines, err := s.smolvm.List(asking)
	if err != nil {
		return fmt.Errorf("listing machines: %w", err)
	}
	strays, err := s.judge(ctx, machines, nil)
	if err != nil {
		return err
	}
	var orphans []api.Machine
	for _, each := range strays {
		if each.what == machineOrphan {
			orphans = append(orphans, each.machine)
		}
	}
	after, ripe := s.seen.next(orphans, now)
	s.seen = after
	s.found(len(orphans), len(strays)-len(orphans))
	s.tell(strays)
	if s.policy != OrphansDelete || len(ripe) == 0 {
		return nil
	}
	return s.deleteAll(ctx, ripe)
}

// tell logs what is new about machines that no SmolVM of this node has.
func (s *sweeper) tell(strays []judged) {
	told := map[orphanKey]string{}
	for _, each := range strays {
		key, o := keyOf(&each.machine), each.machine.Owner
		told[key] = each.why
		if s.told[key] != each.why {
			s.log.Warn("A machine belongs to no SmolVM of this node", "machine", each.machine.Name, "namespace", o.Namespace, "name", o.Name, "uid", o.UID,
				"is", each.what, "reason", each.why, "policy", s.policy)
		}
	}
	s.told = told
}

// findCluster reads the identity of the cluster. In another cluster, what was seen before says nothing.
func (s *sweeper) findCluster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	system := &corev1.Namespace{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("reading the namespace %s, whose UID is that of the cluster: %w", metav1.NamespaceSystem, err)
	}
	if found := string(system.UID); found != s.cluster {
		s.cluster, s.seen = found, nil
	}
	return nil
}

// judge returns the machines that no SmolVM of this node has. uids are those of all SmolVMs, if they are known.
func (s *sweeper) judge(ctx context.Context, machines []api.Machine, uids map[string]bool) ([]judged, error) {
	var strays []judged
	for _, m := range machines {
		if !isOurs(&m, s.cluster) {
			continue
		}
		c, err := s.claim(ctx, m.Owner)
		if err != nil {
			return nil, err
		}
		c.elsewhere = uids[m.Owner.UID] && c.uid != m.Owner.UID
		if what, why := judge(&m, s.cluster, s.node, c); what != machineWanted {
			strays = append(strays, judged{m, what, why})
		}
	}
	return strays, nil
}

func (s *sweeper) claim(ctx context.Context, o *api.Owner) (claim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	vm := &v1alpha1.SmolVM{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, vm)
	switch {
	case isMissing(err, o.Name):
		return claim{}, nil
	case err != nil:
		return claim{}, fmt.Errorf("reading SmolVM %s/%s: %w", o.Namespace, o.Name, err)
	}
	return claim{uid: string(vm.UID), node: vm.Status.NodeName}, nil
}

// isMissing reports whether the API server has looked for the SmolVM of a name and found none. While its kind is not served,
// as after its CRD was deleted, and behind a proxy that knows nothing, the status is the same.
func isMissing(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	if details == nil || details.Name != name || details.Kind != resourceOfVMs || details.Group != v1alpha1.GroupVersion.Group {
		return false
	}
	return !slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
}

// allUIDs returns the UIDs of all SmolVMs. It succeeds only if the API server serves their kind.
func (s *sweeper) allUIDs(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	uids := map[string]bool{}
	for page := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SmolVMList"))
		if err := s.client.List(ctx, list, client.Limit(listPage), client.Continue(page)); err != nil {
			return nil, fmt.Errorf("listing SmolVMs, without which nothing is deleted: %w", err)
		}
		for _, vm := range list.Items {
			uids[string(vm.UID)] = true
		}
		if page = list.Continue; page == "" {
			return uids, nil
		}
	}
}

// deleteAll deletes orphans, if the API server is still that of the cluster and knows SmolVMs.
func (s *sweeper) deleteAll(ctx context.Context, ripe []api.Machine) error {
	before := s.cluster
	if err := s.findCluster(ctx); err != nil {
		return err
	}
	if s.cluster != before {
		return errors.New("the API server is that of another cluster by now")
	}
	uids, err := s.allUIDs(ctx)
	if err != nil {
		return err
	}
	for _, m := range ripe {
		if err := s.delete(ctx, &m, uids); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes an orphan, unless the machine of its name and its SmolVM are others by now.
func (s *sweeper) delete(ctx context.Context, m *api.Machine, uids map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	now, err := s.smolvm.Get(ctx, m.Name)
	if api.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading machine %s: %w", m.Name, err)
	}
	still, err := s.judge(ctx, []api.Machine{now}, uids)
	if err != nil || len(still) == 0 || keyOf(&now) != keyOf(m) {
		return err
	}
	if still[0].what != machineOrphan {
		s.log.Warn("A machine is not deleted", "machine", m.Name, "namespace", m.Owner.Namespace, "name", m.Owner.Name, "uid", m.Owner.UID, "reason", still[0].why)
		return nil
	}
	if err := s.smolvm.Delete(ctx, m.Name); err != nil && !api.IsNotFound(err) {
		return fmt.Errorf("deleting machine %s: %w", m.Name, err)
	}
	s.deleted()
	s.log.Warn("A machine that belonged to no SmolVM is deleted", "machine", m.Name, "namespace", m.Owner.Namespace, "name", m.Owner.Name, "uid", m.Owner.UID)
	return nil
}
