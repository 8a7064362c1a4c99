package etcd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdrestore"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdsnapshot"
)

// TestSnapshotAndRestore runs the commands of the operator's Jobs, including etcd's own tools, on a cluster with
// writes. The snapshot contains every write that was confirmed before it. The restored cluster contains these and
// nothing later, and its masters can be replaced as usual.
func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	c := found(t, 1, 2, 3)
	j := c.jobs()
	c.awaitWritten(50)
	before := c.acked.Load()
	file := j.save()
	c.awaitWritten(c.acked.Load() + 50)
	after := c.acked.Load()
	t.Logf("%s holds write %d and not %d", file, before, after)

	c.mayLose.Store(true)
	c.end()
	for n := 1; n <= 3; n++ {
		c.kill(n, true)
	}
	j.restore(file)
	c.mu.Lock()
	c.seen = map[string]bool{}
	c.mu.Unlock()
	c.end = c.keep(t.Context())
	for n := 1; n <= 3; n++ {
		c.kill(n, false)
	}
	c.await(etcd.None, "")
	c.mayLose.Store(false)
	c.holds(before, after)

	t.Log("a master is replaced")
	c.want(2, 3, 4)
	c.await(etcd.None, "")
	c.holds(before, after)
}

func (c *cluster) awaitWritten(number int64) {
	c.t.Helper()
	poll.Eventually(c.t, patience, 20*time.Millisecond, func() error {
		if acked := c.acked.Load(); acked < number {
			return fmt.Errorf("%d writes were confirmed, want %d", acked, number)
		}
		return nil
	})
}

// holds checks that all writes up to one number exist, and another one does not.
func (c *cluster) holds(all, not int64) {
	c.t.Helper()
	client := c.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	answer, err := client.Get(ctx, "n/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(c.t, err)
	there := map[string]bool{}
	for _, kv := range answer.Kvs {
		there[string(kv.Key)] = true
	}
	for i := int64(1); i <= all; i++ {
		if !there[fmt.Sprintf("n/%08d", i)] {
			c.t.Fatalf("write %d was confirmed before the snapshot and is not in it", i)
		}
	}
	if there[fmt.Sprintf("n/%08d", not)] {
		c.t.Errorf("write %d came after the snapshot and is there", not)
	}
	if answer.Header.Revision < 1_000_000_000 {
		c.t.Errorf("a client may have watched revision %d before the restore", answer.Header.Revision)
	}
}

// jobs runs the containers of the operator's Jobs as processes. Paths and names of the pods are replaced by those of
// the test.
type jobs struct {
	*cluster
	snapshots string
	snapshot  *state.Cluster
}

func (c *cluster) jobs() *jobs {
	config := fixture.MakeCluster("real1").With(func(spec *v1alpha1.KVMConfigSpec) {
		spec.Cluster.Masters, spec.KVM.Masters = nil, nil
		for n := 1; n <= 3; n++ {
			spec.Cluster.Masters = append(spec.Cluster.Masters, v1alpha1.Node{ID: strings.TrimPrefix(name(n), "etcd-")})
			spec.KVM.Masters = append(spec.KVM.Masters, v1alpha1.Machine{CPUs: 1, Memory: "2G"})
		}
		spec.Etcd = &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{
			Schedule: "@daily", Keep: 3, Volume: v1alpha1.SnapshotVolume{HostPath: "/srv"},
		}}
	}).Obj()
	s := &state.Cluster{
		Config: state.WithDefaults(config), Settings: state.Settings{ClusterDomain: "cluster.local"},
		Versions: v1alpha1.Versions{Etcd: "3.6.5"}, Nodes: state.NewNodes(config.Spec),
		Certificates: pki.Set{pki.EtcdClient: {CA: c.pairs[pki.EtcdCA].Certificate, Certificate: c.pairs[pki.Etcd].Certificate, Key: c.pairs[pki.Etcd].Key}},
	}
	for i := range s.Nodes {
		s.Nodes[i].EtcdHost = "host-" + s.Nodes[i].ID
	}
	directory := filepath.Join(c.dir, "snapshots")
	must(c.t, os.Mkdir(directory, 0o700))
	return &jobs{cluster: c, snapshots: directory, snapshot: s}
}

// save takes a snapshot and returns its name.
func (j *jobs) save() string {
	j.t.Helper()
	desired, err := etcdsnapshot.New().Build(j.snapshot)
	must(j.t, err)
	keys := filepath.Join(j.dir, "client")
	must(j.t, os.Mkdir(keys, 0o700))
	for name, data := range desired.Objects[0].(*corev1.Secret).Data {
		must(j.t, os.WriteFile(filepath.Join(keys, name), data, 0o600))
	}
	j.pod(desired.Objects[1].(*batchv1.CronJob).Spec.JobTemplate.Spec.Template.Spec, map[string]string{
		"/pki": keys, "$(POD_NAME)": "etcd-snapshot-1-x", "master.real1.svc.cluster.local": j.address(1),
	})
	files, err := filepath.Glob(filepath.Join(j.snapshots, "*.db"))
	must(j.t, err)
	if len(files) != 1 {
		j.t.Fatalf("snapshots are %v, want one", files)
	}
	return filepath.Base(files[0])
}

// restore checks the snapshot and replaces the data of all machines with it.
func (j *jobs) restore(file string) {
	j.t.Helper()
	j.snapshot.Restore.Restoration = etcd.Restoration{Wanted: file + "/0", Committed: file + "/0", Masters: make([]etcd.RestoredMaster, 3)}
	desired, err := etcdrestore.New().Build(j.snapshot)
	must(j.t, err)
	if len(desired.Objects) != 4 {
		j.t.Fatalf("there are %d Jobs, want one that checks and three that place", len(desired.Objects))
	}
	for i, object := range desired.Objects {
		replace := map[string]string{"/restored": j.t.TempDir(), "/etc/kubernetes/data/etcd": j.volume(name(i))}
		for n := 1; n <= 3; n++ {
			replace[j.snapshot.MemberHost(strings.TrimPrefix(name(n), "etcd-"))] = j.address(n)
		}
		j.pod(object.(*batchv1.Job).Spec.Template.Spec, replace)
	}
}

// pod runs the containers of a pod in sequence.
func (j *jobs) pod(spec corev1.PodSpec, replace map[string]string) {
	j.t.Helper()
	pairs := []string{"/snapshots", j.snapshots}
	for old, next := range replace {
		pairs = append(pairs, old, next)
	}
	replacer := strings.NewReplacer(pairs...)
	for _, container := range append(spec.InitContainers, spec.Containers...) {
		var command []string
		for _, argument := range container.Command {
			command = append(command, replacer.Replace(argument))
		}
		output, err := j.run(command)
		if err != nil {
			j.t.Fatalf("%q: %v\n%s", command, err, output)
		}
	}
}

func (j *jobs) run(command []string) (string, error) {
	if strings.HasPrefix(command[0], "etcd") {
		output, err := exec.CommandContext(j.t.Context(), filepath.Join(filepath.Dir(j.binary), command[0]), command[1:]...).CombinedOutput()
		return string(output), err
	}
	var output strings.Builder
	c := runner.New()
	c.SetArgs(command[2:])
	c.SetOut(&output)
	c.SetErr(&output)
	return output.String(), c.ExecuteContext(j.t.Context())
}
