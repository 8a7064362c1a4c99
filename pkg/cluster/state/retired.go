package state

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Phases of the data that a master has left on a host.
const (
	RetiredLeft     = "Left"
	RetiredRenaming = "Renaming"
	RetiredKept     = "Kept"
)

// AppEtcdRetired is the label app of the pods of the Jobs that work on it.
const AppEtcdRetired = "etcd-retired"

// What Jobs do with retired data.
const (
	doRename = "rename"
	doRemove = "remove"
)

// maxRetired is how many entries status.retired has at most. What masters leave beyond that stays under its name.
const maxRetired = 100

// maxKept is how many directories of a cluster are kept, so that users of a cluster cannot fill hosts.
const maxKept = 10

// RetireJob returns what the operator has to do with the data that a master left, "rename" or "remove", and the name of
// the Job for it. Both are empty while there is nothing to do.
func (s *Cluster) RetireJob(d v1alpha1.RetiredData) (do, name string) {
	switch {
	case d.Phase == RetiredRenaming && !s.inUse(d):
		do = doRename
	case d.Phase == RetiredKept && s.removalDue(d):
		do = doRemove
	default:
		return "", ""
	}
	return do, key.EtcdRetireName(do, d.ID, d.EtcdHost, d.EtcdMark, d.Since.Time)
}

// NextRemoval returns when the next retired data is due for removal, after now; zero if there is none.
func (s *Cluster) NextRemoval() time.Time {
	var next time.Time
	for _, d := range s.Config.Status.Retired {
		if at := s.removedAt(d); d.Phase == RetiredKept && at.After(s.Now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func (s *Cluster) removedAt(d v1alpha1.RetiredData) time.Time {
	return d.Since.Add(s.Settings.EtcdRetention)
}

// removalDue returns whether data was kept for long enough, or whether there is more of it than maxKept. While the time
// is in doubt, no data is old enough.
func (s *Cluster) removalDue(d v1alpha1.RetiredData) bool {
	newer := 0
	for _, other := range s.Config.Status.Retired {
		if other.Phase == RetiredKept && d.Since.Time.Before(other.Since.Time) {
			newer++
		}
	}
	return newer >= maxKept || s.Validity.Doubt == nil && s.overdue(d)
}

func (s *Cluster) overdue(d v1alpha1.RetiredData) bool { return !s.Now.Before(s.removedAt(d)) }

// LookAtRetired computes the next status.retired from the stored one. Handlers act on the stored status, so data is
// renamed only after the status says that no master gets it back. machines are the Deployments of masters that are not
// in the spec.
func (s *Cluster) LookAtRetired(machines []Node, jobs []batchv1.Job) {
	byName := map[string]*batchv1.Job{}
	for i := range jobs {
		byName[jobs[i].Name] = &jobs[i]
	}
	var next []v1alpha1.RetiredData
	for _, d := range s.Config.Status.Retired {
		do, name := s.RetireJob(d)
		done := Succeeded(byName[name])
		switch {
		case d.Phase == RetiredLeft && s.hasMachine(d.ID), d.Phase == RetiredRenaming && s.inUse(d), do == doRemove && done:
			continue // a master uses it again, see Left; or it is gone
		case d.Phase == RetiredLeft:
			d.Phase, d.Message = s.leaves(d, machines)
		case do == doRename && done:
			d.Phase, d.Message = RetiredKept, ""
		}
		d.Message = s.waitsFor(d, byName)
		next = append(next, d)
	}
	for _, n := range s.Config.Status.Nodes {
		known := func(d v1alpha1.RetiredData) bool {
			return d.ID == n.ID && d.EtcdHost == n.EtcdHost && d.EtcdMark == n.EtcdMark && d.Phase != RetiredKept
		}
		if n.Role == key.RoleMaster && n.EtcdHost != "" && !s.hasMachine(n.ID) && !slices.ContainsFunc(next, known) && len(next) < maxRetired {
			next = append(next, v1alpha1.RetiredData{
				ID: n.ID, EtcdHost: n.EtcdHost, EtcdMark: n.EtcdMark, EtcdMember: n.EtcdMember, Phase: RetiredLeft, Since: s.leftAt(n.ID),
			})
		}
	}
	s.Retired = next
}

// inUse reports whether a master uses the directory. That contradicts the phase Renaming, and happens when a user
// restores an older status.
func (s *Cluster) inUse(d v1alpha1.RetiredData) bool {
	return slices.ContainsFunc(s.EtcdMachines(), func(n Node) bool {
		return n.ID == d.ID && n.EtcdMark == d.EtcdMark && (n.EtcdHost == "" || n.EtcdHost == d.EtcdHost)
	})
}

// leftAt returns the time at which a master left, later than any earlier one, because the names of Jobs and directories
// contain it.
func (s *Cluster) leftAt(id string) metav1.Time {
	now := s.Now.Truncate(time.Second)
	for _, d := range s.Config.Status.Retired {
		if d.ID == id && !now.After(d.Since.Time) {
			now = d.Since.Add(time.Second)
		}
	}
	return metav1.NewTime(now)
}

// hasMachine returns whether a master is in the spec or retires.
func (s *Cluster) hasMachine(id string) bool {
	return slices.ContainsFunc(s.EtcdMachines(), func(n Node) bool { return n.ID == id })
}

// leaves returns RetiredRenaming once no machine can start with the data that a master left: its member is out of etcd,
// and it has neither a Deployment nor a pod. Otherwise it returns RetiredLeft and the reason.
func (s *Cluster) leaves(d v1alpha1.RetiredData, machines []Node) (phase, message string) {
	has := func(n Node) bool { return n.ID == d.ID }
	switch {
	case s.Restore.Phase() != etcd.NotRestoring:
		return RetiredLeft, "a snapshot is being restored"
	case !s.Etcd.Known():
		return RetiredLeft, "it is not known whether the master's member was removed from etcd"
	case s.EtcdMember(d.ID) != nil:
		return RetiredLeft, "the master's member was not removed from etcd yet"
	case slices.ContainsFunc(machines, has) || slices.ContainsFunc(s.Leaving, func(p corev1.Pod) bool { return p.Labels[key.LabelNode] == d.ID }):
		return RetiredLeft, "the machine of the master still exists"
	}
	return RetiredRenaming, ""
}

// whyNot returns what a Job waits for.
func (s *Cluster) whyNot(do, name, host string, job *batchv1.Job) string {
	if failure := Failure(job); failure != nil {
		return fmt.Sprintf("Job %[1]s failed (%[2]s): see kubectl --namespace=%[3]s logs job/%[1]s; delete the Job to try again", name, failure.Reason, s.Namespace())
	}
	return fmt.Sprintf("Job %s is to %s the data on host %s; if that host is gone permanently, remove this entry: kubectl edit kvmconfig %s --namespace=%s --subresource=status",
		name, do, host, s.Config.Name, s.Config.Namespace)
}

// waitsFor returns what data waits for: a Job, or, beyond service.etcd.retention, a time that is not in doubt. The message
// of data in another phase stays.
func (s *Cluster) waitsFor(d v1alpha1.RetiredData, jobs map[string]*batchv1.Job) string {
	do, name := s.RetireJob(d)
	switch {
	case do != "":
		return s.whyNot(do, name, d.EtcdHost, jobs[name])
	case d.Phase != RetiredKept:
		return d.Message
	case s.Validity.Doubt != nil && s.overdue(d):
		return "is not removed while the time is in doubt: " + s.Validity.Doubt.Error()
	default:
		return ""
	}
}

// NewEtcdMark returns the mark for the directory of a new master. It differs from the mark of data that is being
// renamed, because the Job must not rename the new directory.
func (s *Cluster) NewEtcdMark(id string) string {
	seed := s.Keys[KeyEncryption]
	mark := key.EtcdMark(seed)
	for i := 1; s.renames(id, mark); i++ {
		mark = key.EtcdMark(seed + strconv.Itoa(i))
	}
	return mark
}

func (s *Cluster) renames(id, mark string) bool {
	return slices.ContainsFunc(s.Config.Status.Retired, func(d v1alpha1.RetiredData) bool {
		return d.ID == id && d.EtcdMark == mark && d.Phase == RetiredRenaming
	})
}

// Left returns the data on a host of a master that is in the spec again; nil if there is none, or none that the master
// may use again.
func (s *Cluster) Left(id string) *v1alpha1.RetiredData {
	at := slices.IndexFunc(s.Config.Status.Retired, func(d v1alpha1.RetiredData) bool { return d.ID == id && d.Phase == RetiredLeft })
	if at < 0 {
		return nil
	}
	return &s.Config.Status.Retired[at]
}
