package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Restore is the restore of the cluster's etcd from a snapshot.
type Restore struct {
	etcd.Restoration
	// Number is how many restores came before the next one.
	Number int64
	// namespace is the UID of the cluster's namespace: what hosts and volumes keep of an earlier cluster with the same
	// ID does not belong to this one.
	namespace types.UID
	// token is the founding token of the last restore that has finished, as it is recorded; empty if it is not.
	token string
	// Jobs are the Jobs that were created for it, by name.
	Jobs map[string]*batchv1.Job
}

// EtcdSnapshots returns whether, and where, snapshots of etcd are kept; nil if they are not.
func (s *Cluster) EtcdSnapshots() *v1alpha1.EtcdSnapshots {
	if e := s.Config.Spec.Etcd; e != nil {
		return e.Snapshots
	}
	return nil
}

// FoundingToken returns the founding token with which etcd was restored from a snapshot; empty if it was not. The token
// that is recorded counts, because a namespace that was restored from a backup has another UID, and the data has not.
func (s *Cluster) FoundingToken() string {
	if known := s.Config.Status.Etcd; known != nil && known.Ticket != "" && known.Restored == s.Restore.LastRestoreRecord() {
		return known.Ticket
	}
	if s.Restore.Done != "" && s.Restore.token != "" {
		return s.Restore.token
	}
	return s.foundingToken(s.Restore.Done, s.Restore.Number-1, s.Founders)
}

// RestoreToken returns the founding token of the restore in progress. It depends on the masters too: restored data
// names all masters for which it was prepared, and cannot be used for another set of masters.
func (s *Cluster) RestoreToken() string {
	var ids []string
	for _, n := range s.Masters() {
		ids = append(ids, n.ID)
	}
	return s.foundingToken(s.Restore.Target(), s.Restore.Number, ids)
}

// foundingToken returns the founding token with which a machine may start with the data of a snapshot, "<file>/<generation>".
// No two restores have the same token: data that one restore has left behind, and data that was written since, must not
// be accepted as the data of another.
func (s *Cluster) foundingToken(snapshot string, number int64, founders []string) string {
	if snapshot == "" {
		return ""
	}
	text := fmt.Sprintf("%s %s %d %s", s.Restore.namespace, snapshot, number, strings.Join(slices.Sorted(slices.Values(founders)), ","))
	sum := sha256.Sum256([]byte(text))
	return key.EtcdRestored + hex.EncodeToString(sum[:6])
}

// tokenForm matches the founding tokens of restores.
var tokenForm = regexp.MustCompile(`^` + key.EtcdRestored + `[0-9a-f]{12}$`)

// RestoreRecord returns the record at the namespace that etcd was restored from the snapshot of the restore in progress.
func (r Restore) RestoreRecord() string { return fmt.Sprintf("%s#%d", r.Target(), r.Number) }

// LastRestoreRecord returns the same record for the last restore that has finished; empty if there was none.
func (r Restore) LastRestoreRecord() string {
	if r.Done == "" {
		return ""
	}
	return fmt.Sprintf("%s#%d", r.Done, r.Number-1)
}

// parseRecord parses such a record. The first restore has the number 0.
func (r *Restore) parseRecord(mark string) {
	snapshot, number, _ := strings.Cut(mark, "#")
	n, err := strconv.ParseInt(number, 10, 64)
	if snapshot == "" || err != nil {
		return
	}
	r.Done, r.Number = snapshot, n+1
}

// SnapshotFile returns the file of a snapshot, "<file>/<generation>".
func SnapshotFile(snapshot string) string {
	file, _ := etcd.SplitSnapshot(snapshot)
	return file
}

// RestoreOfOtherCluster returns whether the requested snapshot does not have a name of this cluster. A restore that has passed
// the check continues to its end.
func (s *Cluster) RestoreOfOtherCluster() bool {
	return s.Restore.Phase() == etcd.Checking && !etcdfiles.OfCluster(SnapshotFile(s.Restore.Target()), s.ID())
}

// RestoreBlocked returns whether a requested restore cannot start until a person does something.
func (s *Cluster) RestoreBlocked() bool {
	check := s.Restore.Jobs[key.EtcdRestoreName(s.RestoreToken(), "")]
	return s.Restore.Phase() == etcd.Checking && (s.RestoreOfOtherCluster() || Failure(check) != nil)
}

// LookAtRestore determines how far a restore has come.
func (s *Cluster) LookAtRestore(namespace *corev1.Namespace, jobs []batchv1.Job, pods []corev1.Pod) {
	r := Restore{Jobs: map[string]*batchv1.Job{}, namespace: namespace.UID}
	for i := range jobs {
		r.Jobs[jobs[i].Name] = &jobs[i]
	}
	if e := s.Config.Spec.Etcd; e != nil && e.Restore != nil {
		r.Wanted = fmt.Sprintf("%s/%d", e.Restore.Snapshot, e.Restore.Generation)
	}
	r.Committed = namespace.Annotations[key.AnnotationEtcdRestoring]
	r.parseRecord(namespace.Annotations[key.AnnotationEtcdRestored])
	if token := namespace.Annotations[key.AnnotationFoundingToken]; r.Done != "" && tokenForm.MatchString(token) {
		r.token = token
	}
	if known := s.Config.Status.Etcd; known != nil && r.Done == "" {
		r.parseRecord(known.Restored)
	}
	s.Restore = r
	token := s.RestoreToken()
	r.Checked = Succeeded(r.Jobs[key.EtcdRestoreName(token, "")])
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Role != key.RoleMaster {
			continue
		}
		placed := Succeeded(r.Jobs[key.EtcdRestoreName(token, n.ID)])
		if placed && n.EtcdHost == "" {
			n.RestoredOn = restoredOn(pods, key.EtcdRestoreName(token, n.ID))
		}
		r.Masters = append(r.Masters, etcd.RestoredMaster{
			Running: slices.ContainsFunc(n.Pods, alive),
			// The place of the data has to be stored too.
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

// restoredOn returns the host on which a Job has restored the data of a master, from the pod of the Job.
func restoredOn(pods []corev1.Pod, job string) string {
	for _, p := range pods {
		if p.Labels[key.LabelApp] == AppEtcdRestore && p.Labels[batchv1.JobNameLabel] == job && p.Status.Phase == corev1.PodSucceeded {
			return p.Spec.NodeName
		}
	}
	return ""
}

// Succeeded returns whether a Job has completed.
func Succeeded(j *batchv1.Job) bool { return finished(j, batchv1.JobComplete) != nil }

// Failure returns why a Job has failed; nil if it has not. The condition FailureTarget counts too, because Failed is
// set only when the Job's pods have ended, which never happens on a dead host.
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
