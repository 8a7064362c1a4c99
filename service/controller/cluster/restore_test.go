package cluster

import (
	stdcmp "cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/configmap"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/deployment"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdrestore"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdsnapshot"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/namespace"
)

const wantedSnapshot = "ab1cd-20261122T060000Z.db"

// restorable returns a cluster of three masters with running machines that is to be restored from a snapshot.
func restorable(t *testing.T) (scenario, world) {
	t.Helper()
	s := scenario{settings: settings(), config: fixture.MakeCluster("ab1cd").Masters(3).Workers(1).Obj()}
	w := s.running(t)
	s.config.Spec.Etcd = &v1alpha1.EtcdData{
		Snapshots: &v1alpha1.EtcdSnapshots{Schedule: "@daily", Keep: 14, Volume: v1alpha1.SnapshotVolume{ClaimName: "snapshots"}},
		Restore:   &v1alpha1.EtcdRestore{Snapshot: wantedSnapshot},
	}
	for _, n := range s.config.Spec.Cluster.Masters {
		w.Deployments[key.DeploymentName(key.RoleMaster, n.ID)].Annotations = map[string]string{
			ownership.Annotation: "default/ab1cd/deployment", key.AnnotationEtcdMember: "abc",
		}
		s.config.Status.Nodes = append(s.config.Status.Nodes, v1alpha1.NodeStatus{ID: n.ID, Role: key.RoleMaster, EtcdHost: "host-" + n.ID})
	}
	w.Namespace.Annotations = map[string]string{key.AnnotationEtcdFounders: s.config.Spec.Cluster.Masters[0].ID}
	return s, w
}

// restoring returns what is rendered while the snapshot replaces the data of masters.
func restoring(t *testing.T) []Rendered {
	t.Helper()
	s, w := restorable(t)
	w.Namespace.Annotations[key.AnnotationEtcdRestoring] = wantedSnapshot + "/0"
	w.Pods = nil
	return []Rendered{
		{Handler: etcdrestore.Name, Objects: built(t, etcdrestore.New(), s.snapshot(t, w))},
		{Handler: "etcdsnapshot", Objects: built(t, etcdsnapshot.New(), s.snapshot(t, w))},
	}
}

func built(t *testing.T, r apply.Resource[*state.Cluster], s *state.Cluster) []client.Object {
	t.Helper()
	desired, err := r.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return desired.Objects
}

// TestPlacesOnVolumesKeepApart: the first pod of a claim may choose the host of its master, and no two masters run on
// one host unless the settings allow it.
func TestPlacesOnVolumesKeepApart(t *testing.T) {
	for shared, want := range map[bool]bool{false: true, true: false} {
		s, w := restorable(t)
		s.config.Spec.KVM.K8sKVM.StorageType, s.settings.SharedHosts = v1alpha1.StorageTypePersistentVolume, shared
		w.Namespace.Annotations[key.AnnotationEtcdRestoring] = wantedSnapshot + "/0"
		w.Pods = nil
		places := 0
		for _, object := range built(t, etcdrestore.New(), s.snapshot(t, w)) {
			job := object.(*batchv1.Job)
			if job.Labels[key.LabelNode] == "" && job.Spec.Template.Labels[key.LabelNode] == "" {
				continue
			}
			places++
			affinity := job.Spec.Template.Spec.Affinity
			if apart := affinity != nil && affinity.PodAntiAffinity != nil; apart != want {
				t.Errorf("shared hosts: %t: %s keeps apart: %t, want %t", shared, job.Name, apart, want)
			}
		}
		if places != 3 {
			t.Errorf("shared hosts: %t: the snapshot is put in %d places, not 3", shared, places)
		}
	}
}

// TestRestoreInSteps simulates the management cluster, one step at a time, and checks what handlers want after each
// step.
func TestRestoreInSteps(t *testing.T) {
	s, w := restorable(t)
	var phases []etcd.Phase
	for range 40 {
		now := s.snapshot(t, w)
		phase := now.Restore.Phase()
		if len(phases) == 0 || phases[len(phases)-1] != phase {
			phases = append(phases, phase)
		}
		if !play(t, &w, now) {
			break
		}
	}
	want := []etcd.Phase{etcd.Checking, etcd.Stopping, etcd.Committing, etcd.Placing, etcd.Founding, etcd.NotRestoring}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	wantAnnotations := map[string]string{
		key.AnnotationEtcdFounders: "m0aaa,m1aaa,m2aaa", key.AnnotationEtcdFounding: "true",
		key.AnnotationEtcdRestored: wantedSnapshot + "/0#0", key.AnnotationFoundingToken: s.snapshot(t, w).FoundingToken(),
	}
	if diff := cmp.Diff(wantAnnotations, w.Namespace.Annotations); diff != "" {
		t.Errorf("annotations of the namespace (-want +got):\n%s", diff)
	}
	beginsWithTheSnapshot(t, s.snapshot(t, w))
}

// beginsWithTheSnapshot checks that each master founds the cluster with the data of the snapshot, with a founding token
// that no old member has.
func beginsWithTheSnapshot(t *testing.T, s *state.Cluster) {
	t.Helper()
	token := s.FoundingToken()
	for _, object := range built(t, configmap.New(), s) {
		config, ok := object.(*corev1.ConfigMap)
		if !ok || !strings.HasPrefix(config.Name, "master-") {
			continue
		}
		text := decode(t, config.Data[nodepod.UserData])
		for _, wanted := range []string{"TICKET=" + token, "--initial-cluster-token=etcd-ab1cd-" + token, "--initial-cluster-state=new"} {
			if !strings.Contains(text, wanted) && !strings.Contains(text, strings.ReplaceAll(wanted, "=", "%3D")) {
				t.Errorf("boot data of %s does not hold %q", config.Name, wanted)
			}
		}
	}
	for _, n := range s.Masters() {
		if s.LostMember(n) || s.AwaitsMember(n) {
			t.Errorf("master %s is taken for one of a member that the snapshot does not know", n.ID)
		}
	}
}

// play does one thing that handlers want; it returns false if they want nothing more.
func play(t *testing.T, w *world, s *state.Cluster) bool {
	t.Helper()
	wantedNamespace := built(t, namespace.New(), s)[0].GetAnnotations()
	if !cmp.Equal(wantedNamespace, w.Namespace.Annotations) {
		w.Namespace.Annotations = wantedNamespace
		return true
	}
	jobs := built(t, etcdrestore.New(), s)
	for _, object := range jobs {
		if done(w, object.(*batchv1.Job)) {
			return true
		}
	}
	w.Restores = slices.DeleteFunc(w.Restores, func(j batchv1.Job) bool {
		return !slices.ContainsFunc(jobs, func(o client.Object) bool { return o.GetName() == j.Name })
	})
	for _, object := range built(t, deployment.New(), s) {
		d := object.(*appsv1.Deployment)
		if *d.Spec.Replicas == 0 && d.Annotations[key.AnnotationEtcdHalted] == "" {
			t.Errorf("Deployment %s is stopped and does not say why", d.Name)
		}
		have := w.Deployments[d.Name]
		if *have.Spec.Replicas == *d.Spec.Replicas {
			continue
		}
		apply.SetOwner(d, s.Owner("deployment"))
		w.Deployments[d.Name] = d
		w.Pods = slices.DeleteFunc(w.Pods, func(p corev1.Pod) bool { return p.Labels[key.LabelNode] == d.Labels[key.LabelNode] })
		if *d.Spec.Replicas > 0 {
			w.Pods = append(w.Pods, podOf(d, "10.244.1.1"))
		}
		return true
	}
	return false
}

// done completes a Job unless it has completed already.
func done(w *world, job *batchv1.Job) bool {
	if slices.ContainsFunc(w.Restores, func(j batchv1.Job) bool { return j.Name == job.Name }) {
		return false
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	w.Restores = append(w.Restores, *job)
	return true
}

// TestWhatGoesOnWhileARestoreStands: a restore that cannot start, because the check failed or because the snapshot is
// another cluster's, does not prevent snapshots; one that was checked does. A master that is lost in the meantime is
// created again in both cases, unless the cluster is about to start with the snapshot.
func TestWhatGoesOnWhileARestoreStands(t *testing.T) {
	failed := func(t *testing.T, s scenario, w *world) {
		for _, object := range built(t, etcdrestore.New(), s.snapshot(t, *w)) {
			job := object.(*batchv1.Job)
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
			w.Restores = append(w.Restores, *job)
		}
	}
	for name, test := range map[string]struct {
		change    func(*testing.T, scenario, *world)
		suspended bool
		lacks     bool
	}{
		"it is checked":    {func(*testing.T, scenario, *world) {}, true, false},
		"the check failed": {failed, false, false},
		"it is of another": {func(_ *testing.T, s scenario, _ *world) {
			s.config.Spec.Etcd.Restore.Snapshot = "ab1ce-20261122T060000Z.db"
		}, false, false},
		"it is of such a one": {func(_ *testing.T, s scenario, _ *world) {
			s.config.Spec.Etcd.Restore.Snapshot = "ab1cd-x-20261122T060000Z.db"
		}, false, false},
		"it has begun, and its check has not been forgotten": {func(t *testing.T, s scenario, w *world) {
			failed(t, s, w)
			w.Namespace.Annotations[key.AnnotationEtcdRestoring] = wantedSnapshot + "/0"
		}, true, true},
		"the cluster has never run": {func(_ *testing.T, s scenario, w *world) {
			s.config.Status.Nodes = nil
			for _, d := range w.Deployments {
				delete(d.Annotations, key.AnnotationEtcdMember)
			}
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := restorable(t)
			for i := range s.config.Status.Nodes {
				s.config.Status.Nodes[i].EtcdMember = "abc"
			}
			test.change(t, s, &w)
			if got := *snapshots(t, s.snapshot(t, w)).Spec.Suspend; got != test.suspended {
				t.Errorf("snapshots are suspended: %t, want %t", got, test.suspended)
			}
			delete(w.Deployments, "master-m1aaa")
			w.Pods = slices.DeleteFunc(w.Pods, func(p corev1.Pod) bool { return p.Labels[key.LabelNode] == "m1aaa" })
			lacks := !slices.Contains(names(built(t, deployment.New(), s.snapshot(t, w))), "master-m1aaa")
			if lacks != test.lacks {
				t.Errorf("the lost master stays away: %t, want %t", lacks, test.lacks)
			}
		})
	}
}

func snapshots(t *testing.T, s *state.Cluster) *batchv1.CronJob {
	t.Helper()
	for _, object := range built(t, etcdsnapshot.New(), s) {
		if job, ok := object.(*batchv1.CronJob); ok {
			return job
		}
	}
	t.Fatal("there is no CronJob of snapshots")
	return nil
}

// TestNoTwoRestoresHaveTheSameToken: data that one restore has placed must never be accepted as that of another.
func TestNoTwoRestoresHaveTheSameToken(t *testing.T) {
	seen := map[string]string{}
	for _, uid := range []types.UID{"a", "b"} {
		for _, done := range []string{"", "ab1cd-20261121T060000Z.db/1#0", "ab1cd-20261121T060000Z.db/1#1"} {
			s, w := restorable(t)
			w.Namespace.UID, w.Namespace.Annotations[key.AnnotationEtcdRestored] = uid, done
			apply.SetOwner(&w.Namespace, key.OwnerKVMConfig(s.config, "namespace"))
			now := s.snapshot(t, w)
			token, what := now.RestoreToken(), fmt.Sprintf("namespace %s after %q", uid, done)
			if other, twice := seen[token]; twice || token == now.FoundingToken() {
				t.Errorf("%s has the token of %s", what, other)
			}
			seen[token] = what
		}
	}
}

// TestFormerMembersAreIgnored: a machine from before the restore that was removed from the spec is not queried and does
// not stay.
func TestFormerMembersAreIgnored(t *testing.T) {
	s, w := restorable(t)
	w.Namespace.Annotations[key.AnnotationEtcdRestored] = wantedSnapshot + "/0#0"
	now := s.snapshot(t, w)
	gone := state.Node{ID: "m9zzz", Role: key.RoleMaster, Deployment: w.Deployments["master-m1aaa"].DeepCopy()}
	if !now.PredatesRestore(gone) || now.Retires(gone) {
		t.Error("a member of before the restore counts")
	}
	now.Founders = []string{"m9zzz"}
	if now.PredatesRestore(gone) || !now.Retires(gone) {
		t.Error("one that founded the etcd of now, and has not been seen yet, does not count")
	}
	now.Founders = nil
	gone.Deployment.Annotations[key.AnnotationEtcdMember] = now.MemberRecord(7)
	if now.PredatesRestore(gone) || !now.Retires(gone) {
		t.Error("a member that came after the restore does not count")
	}
}

// TestARestoreThatCanBeCalledOffIsNoRollout: until a restore is committed, masters are stopped with the revision that
// they have.
func TestARestoreThatCanBeCalledOffIsNoRollout(t *testing.T) {
	for committed, want := range map[string]bool{"": true, wantedSnapshot + "/0": false} {
		s, w := restorable(t)
		s.settings.RunnerImage += "2"
		s.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		now := s.snapshot(t, w)
		now.Restore.Checked, now.Restore.Committed = true, committed
		stopped := 0
		for _, object := range built(t, deployment.New(), now) {
			d := object.(*appsv1.Deployment)
			if d.Annotations[key.AnnotationEtcdHalted] == "" {
				continue
			}
			stopped++
			if same := cmp.Equal(w.Deployments[d.Name].Spec.Template, d.Spec.Template); same != want {
				t.Errorf("begun: %q: %s is unchanged: %t, want %t", committed, d.Name, same, want)
			}
		}
		if stopped != 3 {
			t.Errorf("begun: %q: %d masters are stopped, not all", committed, stopped)
		}
	}
}

// TestCalledOffWithAChangeOfMasters: a master that was stopped starts again, even if it is no longer in the spec.
func TestCalledOffWithAChangeOfMasters(t *testing.T) {
	s, w := restorable(t)
	s.config.Spec.Etcd.Restore = nil
	stopped := w.Deployments["master-m2aaa"].DeepCopy()
	stopped.Annotations[key.AnnotationEtcdHalted], stopped.Spec.Replicas = "true", ptr.To[int32](0)
	now := s.snapshot(t, w)
	now.Retiring = []state.Node{{ID: "m2aaa", Role: key.RoleMaster, Deployment: stopped}}
	for _, object := range built(t, deployment.New(), now) {
		d := object.(*appsv1.Deployment)
		if d.Name == stopped.Name && *d.Spec.Replicas == 1 && d.Annotations[key.AnnotationEtcdHalted] == "" {
			return
		}
	}
	t.Error("the machine stays down")
}

// TestEmulatedMastersBeginWithASnapshotInTurn: the third master stays down, with the revision that it has, until the
// others are Ready.
func TestEmulatedMastersBeginWithASnapshotInTurn(t *testing.T) {
	s, w := restorable(t)
	s.config.Spec.Etcd.Restore = nil
	s.config.Spec.KVM.K8sKVM.Acceleration = v1alpha1.AccelerationTCG
	now := s.snapshot(t, w)
	now.Workload = state.Workload{Reason: "Refused"}
	for i := range now.Nodes {
		if n := &now.Nodes[i]; n.Role == key.RoleMaster {
			n.Deployment = n.Deployment.DeepCopy()
			n.Deployment.Annotations[key.AnnotationEtcdHalted], n.Deployment.Spec.Replicas = "true", ptr.To[int32](0)
		}
	}
	want := map[string]int32{"master-m0aaa": 1, "master-m1aaa": 1, "master-m2aaa": 0}
	for _, object := range built(t, deployment.New(), now) {
		d := object.(*appsv1.Deployment)
		if replicas, ok := want[d.Name]; ok && *d.Spec.Replicas != replicas {
			t.Errorf("%s has %d replicas, want %d", d.Name, *d.Spec.Replicas, replicas)
		}
		delete(want, d.Name)
	}
	if len(want) > 0 {
		t.Errorf("of these is said nothing: %v", want)
	}
}

// TestWhoLeavesDuringARestoreIsStopped: masters that are no longer in the spec are stopped too, because they could be
// the majority of the etcd that ends.
func TestWhoLeavesDuringARestoreIsStopped(t *testing.T) {
	s, w := restorable(t)
	runs := w.Deployments["master-m2aaa"].DeepCopy()
	for _, phase := range []etcd.Phase{etcd.Checking, etcd.Stopping} {
		now := s.snapshot(t, w)
		if now.Restore.Phase() != phase {
			t.Fatalf("the phase is %q, want %q", now.Restore.Phase(), phase)
		}
		now.Retiring = []state.Node{{ID: "m9zzz", Role: key.RoleMaster, Deployment: runs}}
		stopped := false
		for _, object := range built(t, deployment.New(), now) {
			d := object.(*appsv1.Deployment)
			stopped = stopped || d.Name == "master-m9zzz" && *d.Spec.Replicas == 0 && d.Annotations[key.AnnotationEtcdHalted] != ""
		}
		if want := phase == etcd.Stopping; stopped != want {
			t.Errorf("%s: stopped %t, want %t", phase, stopped, want)
		}
		done(&w, built(t, etcdrestore.New(), now)[0].(*batchv1.Job))
	}
}

// TestSnapshotOfAnotherClusterIsRefused: it is refused as long as no data has been changed.
func TestSnapshotOfAnotherClusterIsRefused(t *testing.T) {
	s, w := restorable(t)
	s.config.Spec.Etcd.Restore.Snapshot = "ab1ce-20261122T060000Z.db"
	_, err := etcdrestore.New().Build(s.snapshot(t, w))
	if p, ok := problem.As(err); !ok || p.Reason != "OtherCluster" {
		t.Errorf("err %v", err)
	}
	w.Namespace.Annotations[key.AnnotationEtcdRestoring] = "ab1ce-20261122T060000Z.db/0"
	if _, err := etcdrestore.New().Build(s.snapshot(t, w)); err != nil {
		t.Errorf("what was begun is not ended: %v", err)
	}
}

// TestRevisionsOnlyGrow: revisions only grow over restores of any earlier snapshots: those of the k-th restore are
// above those of all before it.
func TestRevisionsOnlyGrow(t *testing.T) {
	s, w := restorable(t)
	sum := int64(0)
	for number := range 8 {
		w.Namespace.Annotations[key.AnnotationEtcdRestored] = fmt.Sprintf("ab1cd-x.db/9#%d", number-1)
		if number == 0 {
			delete(w.Namespace.Annotations, key.AnnotationEtcdRestored)
		}
		w.Namespace.Annotations[key.AnnotationEtcdRestoring] = wantedSnapshot + "/0"
		w.Pods = nil
		jobs := built(t, etcdrestore.New(), s.snapshot(t, w))
		var by int64
		for _, argument := range jobs[1].(*batchv1.Job).Spec.Template.Spec.InitContainers[0].Command {
			if text, found := strings.CutPrefix(argument, "--bump-revision="); found {
				by, _ = strconv.ParseInt(text, 10, 64)
			}
		}
		if by <= sum {
			t.Errorf("restore %d raises revisions by %d, and those before have by %d", number, by, sum)
		}
		sum += by
	}
}

// TestMastersWithoutAHostGetOneEach: if no host is known to have the data of masters, hosts are chosen one after the
// other, and none twice.
func TestMastersWithoutAHostGetOneEach(t *testing.T) {
	s, w := restorable(t)
	s.config.Status.Nodes = nil
	w.Namespace.Annotations[key.AnnotationEtcdRestoring] = wantedSnapshot + "/0"
	w.Pods = nil
	for _, want := range []string{"check m0aaa", "check m0aaa m1aaa not on host-1", "check m0aaa m1aaa m2aaa not on host-1,host-2"} {
		var got []string
		jobs := built(t, etcdrestore.New(), s.snapshot(t, w))
		for i, object := range jobs {
			job := object.(*batchv1.Job)
			got = append(got, stdcmp.Or(job.Spec.Template.Labels[key.LabelNode], "check"))
			if i == len(jobs)-1 && job.Spec.Template.Spec.Affinity != nil {
				var hosts []string
				for _, field := range job.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields {
					hosts = append(hosts, field.Values...)
				}
				got = append(got, "not on "+strings.Join(hosts, ","))
			}
			done(&w, job)
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("Jobs (-want +got):\n%s", diff)
		}
		last := jobs[len(jobs)-1].GetName()
		s.config.Status.Nodes = append(s.config.Status.Nodes, v1alpha1.NodeStatus{
			ID: strings.Split(last, "-")[2], Role: key.RoleMaster, EtcdHost: fmt.Sprintf("host-%d", len(s.config.Status.Nodes)+1),
		})
	}
}

// TestSnapshotsThatFailAreTold: a failure is reported until the next success.
func TestSnapshotsThatFailAreTold(t *testing.T) {
	at := func(day int) *metav1.Time { return &metav1.Time{Time: now.AddDate(0, 0, day)} }
	for name, test := range map[string]struct {
		status  batchv1.CronJobStatus
		applied time.Time
		suspend bool
		told    bool
		want    string
	}{
		"none was due": {},
		"none was due since its schedule was changed": {status: batchv1.CronJobStatus{LastScheduleTime: at(-9), LastSuccessfulTime: at(-9)}, applied: now.Add(-time.Hour)},
		"one that was due has not begun": {
			status: batchv1.CronJobStatus{LastScheduleTime: at(-9), LastSuccessfulTime: at(-9)}, applied: at(-2).Time, want: "SnapshotFailed",
		},
		"the first one that was due has not begun": {applied: at(-2).Time, want: "SnapshotFailed"},
		"one was taken out of turn":                {status: batchv1.CronJobStatus{LastScheduleTime: at(-9), LastSuccessfulTime: at(0)}, applied: at(-9).Time},
		"none is to be taken for now":              {status: batchv1.CronJobStatus{LastScheduleTime: at(-9), LastSuccessfulTime: at(-9)}, suspend: true},
		"one is being taken after one that failed": {
			status: batchv1.CronJobStatus{LastScheduleTime: at(3), LastSuccessfulTime: at(2), Active: []corev1.ObjectReference{{}}}, told: true, want: "SnapshotFailed",
		},
		"one hangs":                {status: batchv1.CronJobStatus{LastScheduleTime: at(-1), LastSuccessfulTime: at(-2), Active: []corev1.ObjectReference{{}}}, want: "SnapshotFailed"},
		"the last one was taken":   {status: batchv1.CronJobStatus{LastScheduleTime: at(1), LastSuccessfulTime: at(2)}},
		"one is being taken":       {status: batchv1.CronJobStatus{LastScheduleTime: at(3), LastSuccessfulTime: at(2), Active: []corev1.ObjectReference{{}}}},
		"the last one failed":      {status: batchv1.CronJobStatus{LastScheduleTime: at(3), LastSuccessfulTime: at(2)}, want: "SnapshotFailed"},
		"the first one has failed": {status: batchv1.CronJobStatus{LastScheduleTime: at(3)}, want: "SnapshotFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := restorable(t)
			s.config.Spec.Etcd.Restore = nil
			w.Snapshots = &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "@daily", Suspend: &test.suspend}, Status: test.status}
			if !test.applied.IsZero() {
				w.Snapshots.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: key.Operator, Time: &metav1.Time{Time: test.applied}}}
			}
			if test.told {
				s.config.Status.Conditions = []metav1.Condition{{Type: "SnapshotsTaken", Status: metav1.ConditionFalse, Reason: "SnapshotFailed"}}
			}
			desired, err := etcdsnapshot.New().Build(s.snapshot(t, w))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if desired.Wait != nil {
				got = desired.Wait.Reason
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestTheSnapshotIsPutWhereItsMasterLooksForIt: a master returns to the spec while its former directory is being
// renamed, and the cluster is restored. The rename ends before it is stored on which host the snapshot was put.
func TestTheSnapshotIsPutWhereItsMasterLooksForIt(t *testing.T) {
	s, w := restorable(t)
	const id = "m2aaa"
	s.config.Status.Nodes = s.config.Status.Nodes[:2]
	s.config.Status.Retired = []v1alpha1.RetiredData{{
		ID: id, EtcdHost: "host-9", EtcdMark: s.snapshot(t, w).NewEtcdMark(id), Phase: state.RetiredRenaming, Since: metav1.NewTime(now),
	}}
	delete(w.Deployments, key.DeploymentName(key.RoleMaster, id))
	w.Namespace.UID = "1"
	apply.SetOwner(&w.Namespace, key.OwnerKVMConfig(s.config, "namespace"))
	w.Namespace.Annotations[key.AnnotationEtcdRestoring] = wantedSnapshot + "/0"
	w.Pods = nil
	directory := ""
	for _, object := range built(t, etcdrestore.New(), s.snapshot(t, w)) {
		job := object.(*batchv1.Job)
		done(&w, job)
		if job.Spec.Template.Labels[key.LabelNode] != id {
			continue
		}
		directory = nodepod.EtcdDirectory(&job.Spec.Template.Spec)
		labels := map[string]string{batchv1.JobNameLabel: job.Name}
		maps.Copy(labels, job.Spec.Template.Labels)
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeName: "host-3"}}
		pod.Status.Phase = corev1.PodSucceeded
		w.Pods = append(w.Pods, pod)
	}
	s.config.Status.Retired[0].Phase = state.RetiredKept
	for _, n := range s.snapshot(t, w).Masters() {
		if n.ID != id {
			continue
		}
		if got := key.EtcdHostPath("ab1cd", n.EtcdMark, id); got != directory || n.FoundHost != "host-3" {
			t.Errorf("the master looks on host %q in %s, and the snapshot is on host-3 in %s", n.FoundHost, got, directory)
		}
	}
}

// TestTheTokenOutlivesTheNamespace: a namespace that is restored from a backup has its annotations and another UID, and
// the status may be lost. The data on the hosts was made with the token from before.
func TestTheTokenOutlivesTheNamespace(t *testing.T) {
	s, w := restorable(t)
	w.Namespace.UID, w.Namespace.Annotations[key.AnnotationEtcdRestored] = "before", wantedSnapshot+"/0#0"
	apply.SetOwner(&w.Namespace, key.OwnerKVMConfig(s.config, "namespace"))
	before := s.snapshot(t, w)
	for name, value := range built(t, namespace.New(), before)[0].GetAnnotations() {
		w.Namespace.Annotations[name] = value
	}
	w.Namespace.UID = "after"
	if after := s.snapshot(t, w).FoundingToken(); after != before.FoundingToken() {
		t.Errorf("the data has the token %s, and masters start only with data that has the token %s", before.FoundingToken(), after)
	}
}
