package cluster

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdretired"
)

const (
	comesAndGoes = "m1aaa"
	theHost      = "host-1"
)

// leaver is the world of one master that is added and removed: what the API server and its host have of it. An empty
// directory name means none.
type leaver struct {
	// wanted means that the master is in the spec, member that it has a member of etcd, and known that the member list
	// is known.
	wanted, member, known bool
	// node and retired are what the status has of it.
	node    *v1alpha1.NodeStatus
	retired []v1alpha1.RetiredData
	// deployment and pod are the directories of the host that these mount.
	deployment, pod string
	// jobs has the Jobs that were created, and whether they have ended.
	jobs map[string]bool
	// works are the directories that Jobs rename, by the names of the Jobs; data are the directories in which a member
	// has written.
	works map[string]string
	data  map[string]bool
}

func (l leaver) String() string {
	node := "-"
	if l.node != nil {
		node = l.node.EtcdHost + "/" + l.node.EtcdMark
	}
	var retired []string
	for _, d := range l.retired {
		retired = append(retired, d.Phase+"/"+d.EtcdMark)
	}
	var jobs []string // without their names, which contain the time
	for name, done := range l.jobs {
		jobs = append(jobs, fmt.Sprint(l.works[name], done))
	}
	slices.Sort(jobs)
	return fmt.Sprint(l.wanted, l.member, l.known, node, retired, l.deployment, l.pod, jobs, l.data)
}

// snapshot returns what the operator knows of it.
func (l leaver) snapshot() *state.Cluster {
	config := fixture.MakeCluster("ab1cd").Masters(1).Obj()
	if l.wanted {
		config.Spec.Cluster.Masters = append(config.Spec.Cluster.Masters, v1alpha1.Node{ID: comesAndGoes})
		config.Spec.KVM.Masters = append(config.Spec.KVM.Masters, config.Spec.KVM.Masters[0])
	}
	if l.node != nil {
		config.Status.Nodes = []v1alpha1.NodeStatus{*l.node}
	}
	config.Status.Retired = l.retired
	w := world{Config: config, Settings: settings(), Rendering: true, Connects: true, Hold: state.HoldOwn}
	w.Settings.EtcdRetention = 24 * time.Hour
	if l.known {
		w.Etcd.Members = []etcd.Member{{ID: 1, Name: pki.EtcdMember("m0aaa"), Started: true}}
		if l.member {
			w.Etcd.Members = append(w.Etcd.Members, etcd.Member{ID: 2, Name: pki.EtcdMember(comesAndGoes)})
		}
	}
	labels := map[string]string{key.LabelNode: comesAndGoes, key.LabelApp: key.RoleMaster}
	deployments := map[string]*appsv1.Deployment{}
	if l.deployment != "" {
		d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: key.OwnerKVMConfig(config, "deployment").Annotations()}}
		d.Spec.Template.Spec = mounting(l.deployment)
		deployments[key.DeploymentName(key.RoleMaster, comesAndGoes)] = &d
		if !l.wanted {
			w.Retired = []appsv1.Deployment{d}
		}
	}
	if l.pod != "" {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: mounting(l.pod)}
		pod.Spec.NodeName = theHost
		w.Pods = []corev1.Pod{pod}
	}
	w.Deployments = deployments
	var jobs []batchv1.Job
	for name, done := range l.jobs {
		j := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if done {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}
		jobs = append(jobs, j)
	}
	s := plan.Machines(w, now)
	s.LookAtRetired(s.Gone, jobs)
	return s
}

func mounting(directory string) corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "etcd-data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}}}}}
}

// reconcile does what the chain does and stores the status, unless the operator crashes before that.
func (l leaver) reconcile(t *testing.T, crashes bool) leaver {
	t.Helper()
	s := l.snapshot()
	desired, err := etcdretired.New().Build(s)
	if err != nil {
		t.Fatal(err)
	}
	jobs, works := map[string]bool{}, map[string]string{}
	for _, object := range desired.Objects {
		j := object.(*batchv1.Job)
		jobs[j.Name] = l.jobs[j.Name]
		command := j.Spec.Template.Spec.Containers[0].Command
		if slices.Contains(command, "rename") {
			works[j.Name] = path.Join(j.Spec.Template.Spec.Volumes[0].HostPath.Path, key.EtcdDirectory(comesAndGoes))
		}
	}
	l.jobs, l.works = jobs, works
	is := func(n state.Node) bool { return n.ID == comesAndGoes }
	for _, nodes := range [][]state.Node{s.Nodes, s.Retiring} {
		for i := range nodes {
			if n := &nodes[i]; is(*n) && n.EtcdHost == "" && l.pod != "" {
				n.EtcdHost = theHost // by the handler placement
			}
		}
	}
	switch at := slices.IndexFunc(s.Nodes, is); {
	case at >= 0 && l.deployment == "":
		l.deployment = nodepod.EtcdDirectory(&corev1.PodSpec{Volumes: []corev1.Volume{{Name: "etcd-data", VolumeSource: nodepod.EtcdSource(s, s.Nodes[at])}}})
	case at < 0 && !slices.ContainsFunc(s.Retiring, is):
		l.deployment = ""
	}
	if crashes {
		return l
	}
	next := status(s, nil, now)
	l.node, l.retired = state.StatusOf(next.Nodes, key.RoleMaster, comesAndGoes), next.Retired
	// Kept data does not matter. Without it the number of states is finite.
	l.retired = slices.DeleteFunc(slices.Clone(l.retired), func(d v1alpha1.RetiredData) bool { return d.Phase == state.RetiredKept })
	return l
}

// steps returns what may happen next, by name.
func (l leaver) steps(t *testing.T) map[string]leaver {
	t.Helper()
	wanted, known, member := l, l, l
	wanted.wanted, known.known, member.member = !l.wanted, !l.known, l.follows()
	next := map[string]leaver{
		"etcd answers, or does not": known, "members follow the spec": member,
		"the operator works": l.reconcile(t, false), "the operator ends before it stores the status": l.reconcile(t, true),
	}
	if l.wanted || len(l.retired) < 2 { // otherwise there is no limit to what is left for Jobs that do not run
		next["the spec changes"] = wanted
	}
	pod := l
	switch {
	case l.deployment != "" && l.pod == "":
		pod.pod = l.deployment
		next["its pod begins"] = pod
	case l.deployment != "" && l.member && !l.data[l.pod]:
		// Without a member no pod writes data.
		pod.data = maps.Clone(l.data)
		pod.data[l.pod] = true
		next["its pod writes data"] = pod
	case l.deployment == "" && l.pod != "":
		pod.pod = ""
		next["its pod ends"] = pod
	}
	for name, done := range l.jobs {
		if done {
			continue
		}
		job := l
		job.jobs, job.data = maps.Clone(l.jobs), maps.Clone(l.data)
		job.jobs[name] = true
		delete(job.data, l.works[name])
		next[name] = job
	}
	return next
}

// follows returns whether the master has a member once etcd follows the spec. The pass of the operator that has the
// member removed also stores where the machine runs.
func (l leaver) follows() bool {
	stored := l.node != nil && l.node.EtcdHost != ""
	return l.wanted || l.member && l.pod != "" && !stored
}

// wrong returns what must never happen: that a Job may rename a directory that a machine uses or may use.
func (l leaver) wrong() string {
	for name, done := range l.jobs {
		if directory := l.works[name]; !done && directory != "" && (directory == l.pod || directory == l.deployment) {
			return fmt.Sprintf("%s renames %s, with which a machine runs or begins", name, directory)
		}
	}
	return ""
}

// TestLeftDataIsRenamedUnderNoMachine goes through everything that may happen to a master that is added and removed, in
// every order, with an operator that may crash before it stores what it knows. In the end, from every state, the former
// data is renamed, and the master of the spec has its machine.
func TestLeftDataIsRenamedUnderNoMachine(t *testing.T) {
	first := leaver{wanted: true, known: true, jobs: map[string]bool{}, data: map[string]bool{}}
	seen, queue := map[string]leaver{first.String(): first}, []leaver{first}
	ways := map[string]string{}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for name, next := range at.steps(t) {
			id := next.String()
			if _, known := seen[id]; known {
				continue
			}
			seen[id], ways[id] = next, ways[at.String()]+"\n"+name
			if wrong := next.wrong(); wrong != "" {
				t.Fatalf("%s after:%s", wrong, ways[id])
			}
			queue = append(queue, next)
		}
	}
	for id, at := range seen {
		if wrong := at.ends(t); wrong != "" {
			t.Fatalf("%s; it began with %v, after:%s", wrong, at, ways[id])
		}
	}
	t.Logf("%d states", len(seen))
	if len(seen) < 500 {
		t.Error("those are too few to be all")
	}
}

// ends runs the operator until nothing changes, and returns what is wrong in that state.
func (l leaver) ends(t *testing.T) string {
	t.Helper()
	before := ""
	for turns := 0; before != l.String(); turns++ {
		if turns == 100 {
			return "it never comes to rest"
		}
		before = l.String()
		l.known = true
		l = l.reconcile(t, false)
		l.member = l.follows()
		steps := l.steps(t)
		for _, name := range slices.Sorted(maps.Keys(steps)) {
			if strings.HasPrefix(name, "etcd-") || strings.HasPrefix(name, "its pod") {
				l = steps[name]
				break
			}
		}
	}
	switch {
	case len(l.retired) > 0 || len(l.jobs) > 0:
		return fmt.Sprintf("%+v and %v stay", l.retired, l.jobs)
	case l.wanted && (l.pod == "" || len(l.data) != 1 || !l.data[l.pod]):
		return fmt.Sprintf("the master has the directory %q of %v", l.pod, l.data)
	case !l.wanted && len(l.data) > 0:
		return fmt.Sprintf("%v stay under their names", l.data)
	}
	return ""
}

// TestRetiredDataIsRemovedInTime: it is removed after the retention time, or once there is too much of it.
func TestRetiredDataIsRemovedInTime(t *testing.T) {
	kept := func(hours ...int) []v1alpha1.RetiredData {
		var all []v1alpha1.RetiredData
		for _, h := range hours {
			all = append(all, v1alpha1.RetiredData{ID: comesAndGoes, EtcdHost: theHost, Phase: state.RetiredKept, Since: metav1.NewTime(now.Add(-time.Duration(h) * time.Hour))})
		}
		return all
	}
	for name, test := range map[string]struct {
		retired []v1alpha1.RetiredData
		doubt   error
		want    []string
		next    time.Duration
	}{
		"none":                     {nil, nil, nil, 0},
		"young":                    {kept(1, 23), nil, nil, time.Hour},
		"old":                      {kept(24), nil, []string{"24h"}, 0},
		"old and young":            {kept(30, 2), nil, []string{"30h"}, 22 * time.Hour},
		"old, by a clock in doubt": {kept(30, 2), errors.New("the clocks differ"), nil, 22 * time.Hour},
		"more than are kept":       {kept(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), nil, []string{"11h", "12h"}, 12 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := leaver{retired: test.retired}.snapshot()
			s.Validity.Doubt = test.doubt
			s.LookAtRetired(nil, nil)
			if told := slices.ContainsFunc(s.Retired, func(d v1alpha1.RetiredData) bool { return strings.Contains(d.Message, "the clocks differ") }); told != (test.doubt != nil) {
				t.Errorf("the status names the doubt: %t", told)
			}
			var got []string
			for _, d := range s.Config.Status.Retired {
				if do, name := s.RetireJob(d); do != "" {
					got = append(got, fmt.Sprintf("%.0fh", now.Sub(d.Since.Time).Hours()))
					if do != "remove" || !strings.HasPrefix(name, "etcd-remove-m1aaa-") {
						t.Errorf("it is to be %s by %s", do, name)
					}
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v are removed, want %v", got, test.want)
			}
			want := time.Time{}
			if test.next > 0 {
				want = now.Add(test.next)
			}
			if next := s.NextRemoval(); !next.Equal(want) {
				t.Errorf("the next one is removed at %v, want %v", next, want)
			}
		})
	}
}

// TestJobOnLeftData: the Job runs on the host with the data, mounts only the cluster's directory, and does not have the
// rights of a machine.
func TestJobOnLeftData(t *testing.T) {
	for mark, directory := range map[string]string{"": "/home/core/volumes/ab1cd", "0123456789abcdef": "/home/core/volumes/ab1cd/0123456789abcdef"} {
		d := v1alpha1.RetiredData{ID: comesAndGoes, EtcdHost: theHost, EtcdMark: mark, Phase: state.RetiredRenaming, Since: metav1.NewTime(now)}
		s := leaver{retired: []v1alpha1.RetiredData{d}}.snapshot()
		desired, err := etcdretired.New().Build(s)
		if err != nil || len(desired.Objects) != 1 {
			t.Fatalf("%d objects, %v; want a Job", len(desired.Objects), err)
		}
		pod := desired.Objects[0].(*batchv1.Job).Spec.Template.Spec
		container := pod.Containers[0]
		term := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]
		got := []string{pod.Volumes[0].HostPath.Path, container.VolumeMounts[0].MountPath, term.Values[0], strings.Join(container.Command, " ")}
		want := []string{
			directory, "/etcd", theHost, "/opt/kvm-operator/kvm-operator runner etcd-data rename --directory=/etcd --name=k8s-master-m1aaa --as=" + key.RetiredDirectory(comesAndGoes, now),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("another Job (-want +got):\n%s", diff)
		}
		if len(pod.Volumes) != 1 || container.SecurityContext.Privileged != nil || len(container.SecurityContext.Capabilities.Drop) == 0 {
			t.Errorf("it has more than it needs: %+v", pod)
		}
	}
}

// TestDataOfAMasterIsNotRenamed: it is not renamed although the status says that it is being renamed, because an older
// status was restored.
func TestDataOfAMasterIsNotRenamed(t *testing.T) {
	renaming := v1alpha1.RetiredData{ID: comesAndGoes, EtcdHost: theHost, EtcdMark: "0123456789abcdef", Phase: state.RetiredRenaming, Since: metav1.NewTime(now)}
	node := v1alpha1.NodeStatus{ID: comesAndGoes, Role: key.RoleMaster, EtcdHost: theHost, EtcdMark: renaming.EtcdMark}
	for name, test := range map[string]struct {
		change func(l *leaver)
		want   int
	}{
		"it has the directory": {func(*leaver) {}, 0},
		"it has a directory that is to be renamed": {func(l *leaver) {
			l.node, l.deployment = nil, key.EtcdHostPath("ab1cd", renaming.EtcdMark, comesAndGoes)
		}, 0},
		"it has one with another mark":              {func(l *leaver) { l.node.EtcdMark = key.EtcdMark(pki.PlaceholderKey(state.KeyEncryption)) }, 1},
		"it has one of the mark, and on other host": {func(l *leaver) { l.node.EtcdHost = "host-2" }, 1},
		"it is not in the spec":                     {func(l *leaver) { l.wanted = false }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := leaver{wanted: true, known: true, member: true, node: node.DeepCopy(), retired: []v1alpha1.RetiredData{renaming}}
			test.change(&l)
			s := l.snapshot()
			desired, err := etcdretired.New().Build(s)
			if err != nil || len(desired.Objects) != test.want || len(s.Retired) != test.want {
				t.Errorf("%d Jobs (%v) and %+v, want %d", len(desired.Objects), err, s.Retired, test.want)
			}
		})
	}
}

// TestWhyLeftDataStays covers why data is not renamed, and what a Job waits for.
func TestWhyLeftDataStays(t *testing.T) {
	left := v1alpha1.RetiredData{ID: comesAndGoes, EtcdHost: theHost, EtcdMark: key.EtcdMark(pki.PlaceholderKey(state.KeyEncryption)), Phase: state.RetiredLeft, Since: metav1.NewTime(now)}
	renaming := left
	renaming.Phase = state.RetiredRenaming
	for name, test := range map[string]struct {
		world leaver
		job   *batchv1.JobCondition
		phase string
		want  string
	}{
		"etcd does not answer": {leaver{retired: []v1alpha1.RetiredData{left}}, nil, state.RetiredLeft, "it is not known whether the master's member"},
		"its member is there":  {leaver{known: true, member: true, retired: []v1alpha1.RetiredData{left}}, nil, state.RetiredLeft, "the master's member was not removed"},
		"its pod is there": {
			leaver{known: true, pod: key.EtcdHostPath("ab1cd", left.EtcdMark, comesAndGoes), retired: []v1alpha1.RetiredData{left}},
			nil, state.RetiredLeft, "the machine of the master still exists",
		},
		"nothing is there": {leaver{known: true, retired: []v1alpha1.RetiredData{left}}, nil, state.RetiredRenaming, "is to rename the data on host host-1; if that host is gone permanently"},
		"its Job was given up": {
			leaver{known: true, retired: []v1alpha1.RetiredData{renaming}},
			&batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"},
			state.RetiredRenaming, "failed (BackoffLimitExceeded): see kubectl --namespace=ab1cd logs job/etcd-rename-m1aaa-",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.world.snapshot()
			if test.job != nil {
				_, name := s.RetireJob(renaming)
				job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
				job.Status.Conditions = []batchv1.JobCondition{*test.job}
				s.LookAtRetired(s.Gone, []batchv1.Job{job})
			}
			if len(s.Retired) != 1 || s.Retired[0].Phase != test.phase || !strings.Contains(s.Retired[0].Message, test.want) {
				t.Errorf("%+v, want phase %s and %q", s.Retired, test.phase, test.want)
			}
		})
	}
}
