// Package etcdrestore is the handler of the Jobs that restore a cluster's etcd from a snapshot. Other handlers stop and
// start the machines of masters. They follow the same phase (etcd.Restoration).
package etcdrestore

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Name is the handler's name.
const Name = "etcdrestore"

const (
	// root is the directory in which the snapshot is unpacked, in the volume of the name below.
	root       = "/restored"
	volumeRoot = "restored"
	volumeEtcd = "etcd-data"
	// bump is how far each restore raises the revision, so that clients with watches from before do not mistake new
	// revisions for ones that they have seen (https://etcd.io/docs/v3.6/op-guide/recovery). Each restore raises it by
	// twice as much as the restore before, and so by more than all earlier ones together, because the snapshot may be
	// older than they are. The revision has 63 bits, which is enough for as many as doublings.
	bump, doublings = 1_000_000_000, 32
	// retries is how often a failed Job is retried.
	retries = 3
)

// New returns the handler. It does not change a Job that exists: Jobs are immutable, and each is about one snapshot.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: Name, Kinds: []client.Object{&batchv1.Job{}}, Build: build, CreateOnly: true}
}

func build(s *state.Cluster) (apply.Desired, error) {
	phase := s.Restore.Phase()
	if phase == etcd.NotRestoring {
		return apply.Desired{NotConfigured: s.Restore.Done == ""}, nil
	}
	if s.EtcdSnapshots() == nil {
		return apply.Desired{Wait: ptr.To(chain.Wait("NoSnapshots", "a restore is in progress, but spec.etcd.snapshots was removed; set it again", 0))}, nil
	}
	if s.VersionsErr != nil {
		return apply.Desired{}, s.VersionsErr
	}
	if s.RestoreOfOtherCluster() {
		return apply.Desired{}, ofOther(s)
	}
	desired := apply.Desired{Objects: []client.Object{check(s)}}
	if phase == etcd.Placing || phase == etcd.Founding {
		desired.Objects = append(desired.Objects, places(s)...)
	}
	desired.Wait = wait(s, phase)
	return desired, nil
}

// ofOther rejects a snapshot of another cluster, because several clusters may share a volume. With the other cluster's
// data, its objects would be acted on twice, and its Secrets would be unreadable.
func ofOther(s *state.Cluster) error {
	return problem.Newf("OtherCluster", "snapshot %s does not belong to this cluster, whose snapshots have the names %s-<time>.db; name another one, or none, "+
		"or rename the file if it is the right one", state.SnapshotFile(s.Restore.Target()), s.ID())
}

// wait describes what is in progress, or which Job failed.
func wait(s *state.Cluster, phase etcd.Phase) *chain.Outcome {
	file, token := state.SnapshotFile(s.Restore.Target()), s.RestoreToken()
	names := []string{key.EtcdRestoreName(token, "")}
	if phase == etcd.Placing {
		names = nil
		for _, n := range s.Masters() {
			names = append(names, key.EtcdRestoreName(token, n.ID))
		}
	}
	for _, name := range names {
		if failure := state.Failure(s.Restore.Jobs[name]); failure != nil {
			return ptr.To(chain.Wait("RestoreFailed", fmt.Sprintf("Job %s failed (%s): see kubectl --namespace=%s logs --all-containers job/%s; delete the Job to try again, "+
				"or name another snapshot%s", name, failure.Reason, s.Namespace(), name, callOff(s)), 0))
		}
	}
	for i, n := range s.Masters() {
		name := key.EtcdRestoreName(token, n.ID)
		if phase == etcd.Placing && !s.Restore.Masters[i].Placed && hostOf(n) == "" && state.Succeeded(s.Restore.Jobs[name]) {
			return ptr.To(chain.Wait(string(phase), fmt.Sprintf("Job %s has ended, but its pod is gone, so the host is not known; delete the Job to run it again", name), 0))
		}
	}
	message := map[etcd.Phase]string{
		etcd.Checking:   "checking that " + file + " exists and is complete",
		etcd.Stopping:   "stopping the machines of masters: " + running(s),
		etcd.Committing: "the machines of masters are stopped",
		etcd.Placing:    "replacing the data of masters with " + file + ": " + strings.Join(names, ", "),
		etcd.Founding:   "masters found etcd from " + file,
	}[phase]
	return ptr.To(chain.Wait(string(phase), message, 0))
}

func callOff(s *state.Cluster) string {
	if s.Restore.Committed == "" {
		return ", or none: no data was changed"
	}
	return ""
}

func running(s *state.Cluster) string {
	var names []string
	for i, n := range s.Masters() {
		if s.Restore.Masters[i].Running {
			names = append(names, n.ID)
		}
	}
	return strings.Join(names, ", ")
}

// check returns the Job that reads the snapshot before anything is changed.
func check(s *state.Cluster) *batchv1.Job {
	file := path.Join(etcdjob.Snapshots, state.SnapshotFile(s.Restore.Target()))
	return job(s, "", etcdjob.Pod(s, nil, etcdjob.Runner(s, "check", []string{"etcd-snapshot", "check", file}, etcdjob.SnapshotsMount(true))))
}

// places returns the Jobs of all masters. Jobs whose data may go to any host run one after the other, because no two
// masters can run on one host.
func places(s *state.Cluster) []client.Object {
	var jobs []client.Object
	chosen := false
	for _, n := range s.Masters() {
		free := hostOf(n) == "" && !s.EtcdOnVolume()
		if free && chosen {
			continue
		}
		chosen = chosen || free
		jobs = append(jobs, place(s, n))
	}
	return jobs
}

// hostOf returns the host with the data of a master. If a Job has just placed the data, the host is not stored yet.
func hostOf(n state.Node) string { return cmp.Or(n.EtcdHost, n.RestoredOn) }

// place returns the Job that restores the snapshot with etcd's own tool and replaces the master's data with the result.
func place(s *state.Cluster, n state.Node) *batchv1.Job {
	member, token := s.EtcdMaster(n.ID), s.RestoreToken()
	var founders []string
	for _, m := range s.EtcdMasters() {
		founders = append(founders, m.Name+"="+m.PeerURL)
	}
	mount := corev1.VolumeMount{Name: volumeRoot, MountPath: root}
	restore := etcdjob.Tool(s, "restore", []string{
		"etcdutl", "snapshot", "restore", path.Join(etcdjob.Snapshots, state.SnapshotFile(s.Restore.Target())),
		"--data-dir=" + path.Join(root, etcdfiles.Data), "--name=" + member.Name,
		"--initial-cluster=" + strings.Join(founders, ","), "--initial-advertise-peer-urls=" + member.PeerURL,
		"--initial-cluster-token=" + cloudconfig.EtcdToken(s.ID(), token),
		fmt.Sprintf("--bump-revision=%d", int64(bump)<<min(s.Restore.Number, doublings)), "--mark-compacted",
	}, etcdjob.SnapshotsMount(true), mount)
	put := etcdjob.Runner(s, "place", []string{
		"etcd-snapshot", "place", "--volume=" + nodepod.EtcdData, "--ticket=" + token, "--disk=" + nodepod.EtcdDisk, root,
	}, mount, corev1.VolumeMount{Name: volumeEtcd, MountPath: nodepod.EtcdData})
	spec := etcdjob.Pod(s, restore, put,
		corev1.Volume{Name: volumeRoot, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: volumeEtcd, VolumeSource: nodepod.EtcdSource(s, n)},
	)
	if spec.Affinity = onHost(s, n); hostOf(n) == "" && !s.EtcdOnVolume() {
		// The host that gets the data has to be able to run the machine.
		spec.Containers[0].Resources = nodepod.MachineResources(s, n)
	}
	if s.EtcdOnVolume() && !s.Settings.SharedHosts {
		spec.Affinity = apart(s)
	}
	return job(s, n.ID, spec)
}

// apart spreads pods over hosts, because a claim that is first bound here may tie its master to the host permanently.
// It is only a preference because the volume of a master whose host is dead has to get the snapshot, too.
func apart(s *state.Cluster) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100,
		PodAffinityTerm: corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: key.LabelApp, Operator: metav1.LabelSelectorOpIn, Values: []string{key.RoleMaster, state.AppEtcdRestore},
			}}},
			Namespaces: []string{s.Namespace()}, TopologyKey: key.LabelHostname,
		},
	}}}}
}

// onHost schedules a pod on the host with the data of a master, or away from hosts with the data of others.
func onHost(s *state.Cluster, n state.Node) *corev1.Affinity {
	var hosts []corev1.NodeSelectorRequirement
	add := func(operator corev1.NodeSelectorOperator, host string) {
		hosts = append(hosts, corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: operator, Values: []string{host}})
	}
	if host := hostOf(n); host != "" {
		add(corev1.NodeSelectorOpIn, host)
	}
	for _, other := range s.Masters() {
		if host := hostOf(other); host != "" && hostOf(n) == "" && !s.Settings.SharedHosts {
			add(corev1.NodeSelectorOpNotIn, host)
		}
	}
	if len(hosts) == 0 || s.EtcdOnVolume() {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: hosts}},
	}}}
}

func job(s *state.Cluster, nodeID string, spec corev1.PodSpec) *batchv1.Job {
	// The operator watches pods with this label because the pod shows on which host the data of a master was put.
	labels := s.Labels(state.App(state.AppEtcdRestore), map[string]string{key.LabelPodWatcher: key.Operator})
	if nodeID != "" {
		labels[key.LabelNode] = nodeID
	}
	delete(labels, key.LabelManagedBy)
	j := &batchv1.Job{
		ObjectMeta: s.Meta(key.EtcdRestoreName(s.RestoreToken(), nodeID)),
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](retries), ActiveDeadlineSeconds: ptr.To[int64](etcdjob.Deadline),
			Template: corev1.PodTemplateSpec{Spec: spec},
		},
	}
	j.Spec.Template.Labels = labels
	return j
}
