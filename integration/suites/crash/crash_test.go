package crash_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// operation is a change of a cluster for which the operator needs several writes.
type operation struct {
	// from is the cluster before. It is nil when the operation creates the cluster.
	from func(id string) *v1alpha1.KVMConfig
	// do is what the user does.
	do func(t *testing.T, config *v1alpha1.KVMConfig)
	// done returns an error unless the cluster, besides its objects, has the expected state.
	done func(config *v1alpha1.KVMConfig) error
	// every tests only every n-th write where many are alike. Zero tests all.
	every int
}

func base(id string) *v1alpha1.KVMConfig {
	return fixture.MakeCluster(id).Workers(2).Label(key.LabelVersion, "4.0.0").Obj()
}

func scaled(workers int) func(*testing.T, *v1alpha1.KVMConfig) {
	return func(t *testing.T, config *v1alpha1.KVMConfig) {
		lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) {
			wanted := fixture.MakeCluster(config.Spec.Cluster.ID).Workers(workers).Obj()
			c.Spec.Cluster.Workers, c.Spec.KVM.Workers = wanted.Spec.Cluster.Workers, wanted.Spec.KVM.Workers
		})
	}
}

var operations = map[string]operation{
	"create":         {do: func(t *testing.T, config *v1alpha1.KVMConfig) { theLab.Create(t, config) }, done: observed},
	"scale up":       {from: base, do: scaled(3), done: observed},
	"scale down":     {from: base, do: scaled(1), done: observed},
	"change version": {from: base, do: changeVersion, done: observed},
	"rotate CAs":     {from: oneMaster, do: rotateCAs, done: rotated, every: 7},
	"restore":        {from: withSnapshots, do: restore, done: restored},
	"delete":         {from: base, do: func(t *testing.T, config *v1alpha1.KVMConfig) { theLab.Delete(t, config) }, done: gone},
}

// oneMaster is a cluster of one master. It has every write of a CA rotation once.
func oneMaster(id string) *v1alpha1.KVMConfig { return fixture.MakeCluster(id).Obj() }

func rotateCAs(t *testing.T, config *v1alpha1.KVMConfig) {
	lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) { c.Spec.Certificates = &v1alpha1.Certificates{AuthorityGeneration: 1} })
}

// withSnapshots is a cluster of one master whose data is on a volume, so no host has to be known.
func withSnapshots(id string) *v1alpha1.KVMConfig {
	return fixture.MakeCluster(id).EtcdOnVolume("15Gi").With(func(spec *v1alpha1.KVMConfigSpec) {
		spec.Etcd = &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{Keep: 3, Volume: v1alpha1.SnapshotVolume{HostPath: "/var/snapshots"}}}
	}).Obj()
}

func restore(t *testing.T, config *v1alpha1.KVMConfig) {
	lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Etcd.Restore = &v1alpha1.EtcdRestore{Snapshot: c.Spec.Cluster.ID + "-20261122T060000Z.db"}
	})
}

// restored returns an error unless the cluster was founded again from the snapshot. Nothing runs the pods of Jobs here,
// so they count as done as soon as they exist.
func restored(config *v1alpha1.KVMConfig) error {
	ctx := context.Background()
	var pods corev1.PodList
	id := key.Namespace(config.Spec.Cluster.ID)
	if err := theLab.Client.List(ctx, &pods, client.InNamespace(id), client.MatchingLabels{key.LabelApp: state.AppEtcdRestore}); err != nil {
		return err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.Phase != corev1.PodSucceeded {
			before := pod.DeepCopy()
			pod.Status.Phase = corev1.PodSucceeded
			if err := theLab.Client.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
				return err
			}
		}
	}
	namespace := &corev1.Namespace{}
	if err := theLab.Client.Get(ctx, client.ObjectKey{Name: id}, namespace); err != nil {
		return err
	}
	if namespace.Annotations[key.AnnotationEtcdRestored] != config.Spec.Cluster.ID+"-20261122T060000Z.db/0#0" {
		return errors.New("the cluster has not begun with the snapshot")
	}
	return observed(config)
}

// rotated returns an error unless the CAs are new and the only trusted ones.
func rotated(config *v1alpha1.KVMConfig) error {
	if err := observed(config); err != nil {
		return err
	}
	return theLab.Rotated(context.Background(), config, pki.Authorities...)
}

func changeVersion(t *testing.T, config *v1alpha1.KVMConfig) {
	lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) {
		c.Labels[key.LabelVersion] = "4.0.1"
		c.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.2"}
	})
}

func observed(config *v1alpha1.KVMConfig) error { return theLab.Observed(config) }

func gone(config *v1alpha1.KVMConfig) error { return theLab.Gone(config) }

// prepare brings a cluster to the point where the operation starts, and starts the operation.
func prepare(t *testing.T, driver *lab.Driver, o operation, id string) *v1alpha1.KVMConfig {
	t.Helper()
	config := base(id)
	if o.from != nil {
		config = o.from(id)
		theLab.Create(t, config)
		driver.Instance(t, lab.InstanceOptions{}).Settle(t, config, theLab.Observed)
	}
	o.do(t, config)
	return config
}

func TestOperationsSurviveACrashAtEveryWrite(t *testing.T) {
	driver := theLab.Driver(t)
	number := 0
	for name, o := range operations {
		number++
		t.Run(name, func(t *testing.T) {
			calm := prepare(t, driver, o, fmt.Sprintf("x%d", number))
			operator := driver.Instance(t, lab.InstanceOptions{})
			operator.Settle(t, calm, o.done)
			want, writes := theLab.Dump(t, calm), len(operator.Requests.Writes())
			t.Logf("%s: %d writes, after each %d of which there is a crash", name, writes, max(o.every, 1))
			for k := 1; k <= writes; k += max(o.every, 1) {
				id := fmt.Sprintf("x%dw%d", number, k)
				t.Run(fmt.Sprintf("write %d", k), func(t *testing.T) {
					t.Parallel()
					config := prepare(t, driver, o, id)
					crash(t, driver, config, &lab.Crash{K: k}, o.done)
					driver.Instance(t, lab.InstanceOptions{}).Settle(t, config, o.done)
					if diff := cmp.Diff(want, theLab.Dump(t, config)); diff != "" {
						t.Errorf("not as without a crash (-calm +crashed):\n%s", diff)
					}
				})
			}
		})
	}
}

// crash runs an operator until it crashes at the write. The number of status writes depends on the progress of the
// garbage collector, so the last writes may not occur. Then the operation is over.
func crash(t *testing.T, driver *lab.Driver, config *v1alpha1.KVMConfig, c *lab.Crash, done func(*v1alpha1.KVMConfig) error) {
	t.Helper()
	operator := driver.Instance(t, lab.InstanceOptions{Transport: c.Transport})
	lab.Eventually(t, lab.Timeout, func() error {
		before := len(operator.Requests.All())
		err := operator.Reconcile(context.Background(), config)
		if c.Crashed() || err == nil && done(config) == nil && len(operator.Requests.All()) == before {
			return nil
		}
		return fmt.Errorf("write %d does not come, last error %w", c.K, err)
	})
}
