package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Restore is the way of the cluster back to a snapshot of its etcd.
type Restore struct {
	etcd.Restoration
	// Number is how many restores came before the next one.
	Number int64
	// namespace is the identity of the cluster's namespace: what hosts and volumes keep of a cluster of the same id that there was before
	// is not this one's.
	namespace types.UID
	// Jobs are those that were made for it, by name.
	Jobs map[string]*batchv1.Job
}

// EtcdSnapshots says whether, and where, snapshots of etcd are kept; nil when they are not.
func (s *Snapshot) EtcdSnapshots() *v1alpha1.EtcdSnapshots {
	if e := s.Config.Spec.Etcd; e != nil {
		return e.Snapshots
	}
	return nil
}

// FoundingTicket is the ticket that etcd began with when it began with a snapshot; empty otherwise.
func (s *Snapshot) FoundingTicket() string {
	if known := s.Config.Status.Etcd; known != nil && known.Ticket != "" && known.Restored == s.Restore.DoneMark() {
		return known.Ticket
	}
	return s.ticket(s.Restore.Done, s.Restore.Number-1, s.Founders)
}

// RestoreTicket is the ticket of the snapshot that the cluster is on its way to. It goes by the masters, too: data names all that it was made
// for, and the data of one set of masters is no good for another.
func (s *Snapshot) RestoreTicket() string {
	var ids []string
	for _, n := range s.Masters() {
		ids = append(ids, n.ID)
	}
	return s.ticket(s.Restore.Target(), s.Restore.Number, ids)
}

// ticket is the right of a machine to begin with the data of a snapshot, "<file>/<generation>". No two restores have the same: what one has
// left behind, and what was written since, must not pass for what another puts in place.
func (s *Snapshot) ticket(snapshot string, number int64, founders []string) string {
	if snapshot == "" {
		return ""
	}
	text := fmt.Sprintf("%s %s %d %s", s.Restore.namespace, snapshot, number, strings.Join(slices.Sorted(slices.Values(founders)), ","))
	sum := sha256.Sum256([]byte(text))
	return key.EtcdRestored + hex.EncodeToString(sum[:6])
}

// RestoredMark is how it is written down at the namespace that etcd has begun with the snapshot that the cluster is on its way to.
func (r Restore) RestoredMark() string { return fmt.Sprintf("%s#%d", r.Target(), r.Number) }

// DoneMark is the same of the snapshot that etcd began with; empty when it began with nothing.
func (r Restore) DoneMark() string {
	if r.Done == "" {
		return ""
	}
	return fmt.Sprintf("%s#%d", r.Done, r.Number-1)
}

// readMark reads it. The first restore has the number 0.
func (r *Restore) readMark(mark string) {
	snapshot, number, _ := strings.Cut(mark, "#")
	n, err := strconv.ParseInt(number, 10, 64)
	if snapshot == "" || err != nil {
		return
	}
	r.Done, r.Number = snapshot, n+1
}

// SnapshotFile is the file of a snapshot, "<file>/<generation>".
func SnapshotFile(snapshot string) string {
	file, _ := etcd.SplitSnapshot(snapshot)
	return file
}

// RestoresOther says that the snapshot that is asked for has not the name of one of this cluster. What has been begun is ended.
func (s *Snapshot) RestoresOther() bool {
	return s.Restore.Phase() == etcd.Checking && !etcdfiles.OfCluster(SnapshotFile(s.Restore.Target()), s.ID())
}

// RestoreStands says that a restore that is asked for cannot begin until a person does something.
func (s *Snapshot) RestoreStands() bool {
	check := s.Restore.Jobs[key.EtcdRestoreName(s.RestoreTicket(), "")]
	return s.Restore.Phase() == etcd.Checking && (s.RestoresOther() || Failure(check) != nil)
}

// LookAtRestore finds out how far the cluster is on its way back to a snapshot.
func (s *Snapshot) LookAtRestore(namespace *corev1.Namespace, jobs []batchv1.Job, pods []corev1.Pod) {
	r := Restore{Jobs: map[string]*batchv1.Job{}, namespace: namespace.UID}
	for i := range jobs {
		r.Jobs[jobs[i].Name] = &jobs[i]
	}
	if e := s.Config.Spec.Etcd; e != nil && e.Restore != nil {
		r.Wanted = fmt.Sprintf("%s/%d", e.Restore.Snapshot, e.Restore.Generation)
	}
	r.Committed = namespace.Annotations[key.AnnotationEtcdRestoring]
	r.readMark(namespace.Annotations[key.AnnotationEtcdRestored])
	if known := s.Config.Status.Etcd; known != nil && r.Done == "" {
		r.readMark(known.Restored)
	}
	s.Restore = r
	ticket := s.RestoreTicket()
	r.Checked = Succeeded(r.Jobs[key.EtcdRestoreName(ticket, "")])
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Role != key.RoleMaster {
			continue
		}
		placed := Succeeded(r.Jobs[key.EtcdRestoreName(ticket, n.ID)])
		if placed && n.EtcdHost == "" {
			n.RestoredOn = restoredOn(pods, key.EtcdRestoreName(ticket, n.ID))
		}
		r.Masters = append(r.Masters, etcd.RestoredMaster{
			Running: slices.ContainsFunc(n.Pods, alive),
			// Where the data is has to be stored, too.
			Placed: placed && (n.EtcdHost != "" || s.EtcdOnVolume()),
		})
	}
	s.Restore = r
}

func alive(p corev1.Pod) bool {
	return !joining.Ended(&p)
}

// AppEtcdRestore is the label app of the pods of the Jobs of a restore.
const AppEtcdRestore = "etcd-restore"

// restoredOn is the host on which a Job has put the data of a master, as its pod tells.
func restoredOn(pods []corev1.Pod, job string) string {
	for _, p := range pods {
		if p.Labels[key.LabelApp] == AppEtcdRestore && p.Labels[batchv1.JobNameLabel] == job && p.Status.Phase == corev1.PodSucceeded {
			return p.Spec.NodeName
		}
	}
	return ""
}

// Succeeded says whether a Job has done what it was made for.
func Succeeded(j *batchv1.Job) bool { return finished(j, batchv1.JobComplete) != nil }

// Failure is why a Job was given up; nil when it was not. It is not yet said to have failed while a pod of it ends, which on a dead host
// takes for ever.
func Failure(j *batchv1.Job) *batchv1.JobCondition {
	return cmp.Or(finished(j, batchv1.JobFailed), finished(j, batchv1.JobFailureTarget))
}

func finished(j *batchv1.Job, as batchv1.JobConditionType) *batchv1.JobCondition {
	if j == nil {
		return nil
	}
	at := slices.IndexFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == as && c.Status == corev1.ConditionTrue })
	if at < 0 {
		return nil
	}
	return &j.Status.Conditions[at]
}
