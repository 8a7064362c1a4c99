package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kvm-operator/kvm-operator/integration/harness/etcdguest"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// etcdAddresses returns the addresses of members for operators.
func (w *World) etcdAddresses(s *state.Cluster) func(*corev1.Pod) string {
	if !hasEtcd(s.ID()) {
		return nil
	}
	return w.machines.Address
}

// setLedger closes the current ledger and replaces it with the ledger of another etcd, or with nil.
func (c *life) setLedger(next *etcdguest.Ledger) {
	c.mu.Lock()
	last := c.ledger
	c.ledger = next
	c.mu.Unlock()
	if last != nil {
		last.Close()
	}
}

func (c *life) currentLedger() *etcdguest.Ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger
}

// ledgerOf returns the ledger of a cluster's etcd. It is nil if there is none.
func (w *World) ledgerOf(id string) *etcdguest.Ledger {
	at := slices.IndexFunc(w.lives, func(l *life) bool { return l.id == id })
	if at < 0 {
		return nil
	}
	return w.lives[at].currentLedger()
}

// kept returns an error unless the members of etcd are those of the masters and have everything that was written.
func (c *life) kept(ctx context.Context, config *v1alpha1.KVMConfig) error {
	ledger := c.currentLedger()
	if ledger == nil {
		return nil
	}
	if have := meta.FindStatusCondition(config.Status.Conditions, "EtcdReady"); !meta.IsStatusConditionTrue(config.Status.Conditions, "EtcdReady") {
		return told{fmt.Errorf("the condition EtcdReady is %+v", have)}
	}
	voters, err := ledger.Voters(ctx)
	if err != nil {
		return err
	}
	want := each(config.Spec.Cluster.Masters, func(n v1alpha1.Node) string { return pki.EtcdMember(n.ID) })
	return errors.Join(
		same("the members are those of masters", want, each(voters, func(v etcdguest.Voter) string { return v.Name })), ledger.Check(ctx))
}

// discard removes the disks of masters that no longer exist, except those of the first ones, which the next cluster
// with this id finds.
func (c *life) discard(ctx context.Context) {
	config, err := c.config(ctx, c.world.lab.Client)
	if err != nil {
		return
	}
	if err := c.world.machines.Discard(c.id, func(node string) bool {
		return slices.Contains([]string{"m0aaa", "m1aaa", "m2aaa"}, node) ||
			slices.ContainsFunc(config.Spec.Cluster.Masters, func(n v1alpha1.Node) bool { return n.ID == node })
	}); err != nil {
		c.failed("removing disks: %s", err)
	}
}

// resizeControlPlane scales the masters from one to three, from three to one or five, or from five to three.
func (c *life) resizeControlPlane(ctx context.Context) error {
	if !hasEtcd(c.id) {
		return nil // new masters wait for etcd
	}
	more := c.random.IntN(2) == 0
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		n := len(config.Spec.Cluster.Masters)
		for range 2 {
			switch {
			case n == 1 || n == 3 && more:
				c.addMaster(config)
			default:
				c.removeMaster(config)
			}
		}
	})
}

// replaceMaster replaces one of several masters.
func (c *life) replaceMaster(ctx context.Context) error {
	if !hasEtcd(c.id) {
		return nil
	}
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		if len(config.Spec.Cluster.Masters) > 1 { // the only one has the data
			c.removeMaster(config)
			c.addMaster(config)
		}
	})
}

// freeze stops some members of etcd for some time, sometimes a majority of them, and then there is no leader.
func (c *life) freeze(ctx context.Context) error {
	if !hasEtcd(c.id) {
		return nil
	}
	thaw := c.world.machines.Freeze(c.id, func(node string) bool {
		frozen := c.random.IntN(2) == 0
		if frozen {
			c.say("the etcd member of %s hangs for some time", node)
		}
		return frozen
	})
	pause(ctx, c.some(8*time.Second))
	thaw()
	return nil
}

// fill fills etcd's database. The operator has to find out when there is room again.
func (c *life) fill(ctx context.Context) error {
	ledger := c.currentLedger()
	if ledger == nil || !ledger.Begun() {
		return nil
	}
	if err := ledger.Fill(ctx); err != nil {
		return nil //nolint:nilerr // members change, and there may be none to fill
	}
	c.say("etcd is full")
	return nil
}

func (c *life) addMaster(config *v1alpha1.KVMConfig) {
	id := fmt.Sprintf("m%daaa", c.bornMasters)
	c.bornMasters++
	c.say("master %s is added", id)
	config.Spec.Cluster.Masters = append(config.Spec.Cluster.Masters, v1alpha1.Node{ID: id})
	config.Spec.KVM.Masters = append(config.Spec.KVM.Masters, v1alpha1.Machine{CPUs: 2, Memory: "4G"})
}

func (c *life) removeMaster(config *v1alpha1.KVMConfig) {
	masters := config.Spec.Cluster.Masters
	i := c.random.IntN(len(masters))
	c.say("master %s is removed", masters[i].ID)
	config.Spec.Cluster.Masters = slices.Delete(masters, i, i+1)
	config.Spec.KVM.Masters = slices.Delete(config.Spec.KVM.Masters, i, i+1)
}

// checkMemberRelease is called before the machine of a master is released. It reports a violation if etcd loses quorum,
// unless the member has no vote or is the only voter. Members that crashed a moment ago count because the operator
// cannot know about them.
func (j *judge) checkMemberRelease(ctx context.Context, ledger *etcdguest.Ledger, pod *corev1.Pod) {
	voters, err := ledger.Voters(ctx)
	if err != nil {
		return // there is no quorum to lose
	}
	votes, left := false, 0
	for _, v := range voters {
		switch {
		case v.Name == pki.EtcdMember(pod.Labels[key.LabelNode]):
			votes = v.Down == 0
		case v.Down == 0 || v.Down < known && !v.Released:
			left++
		}
	}
	if votes && len(voters) > 1 && left <= len(voters)/2 {
		j.violated("%s/%s: the machine is released, and %d etcd members are left: %+v", pod.Namespace, pod.Name, left, voters)
	}
}
