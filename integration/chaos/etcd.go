package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kvm-operator/kvm-operator/integration/etcdguest"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// etcdAddresses tell operators where members answer.
func (w *World) etcdAddresses(s *snapshot.Snapshot) func(*corev1.Pod) string {
	if !hasEtcd(s.ID()) {
		return nil
	}
	return w.machines.Address
}

// keepBooks ends what was written to an etcd, and begins with what is written to another one.
func (c *life) keepBooks(next *etcdguest.Ledger) {
	c.mu.Lock()
	last := c.ledger
	c.ledger = next
	c.mu.Unlock()
	if last != nil {
		last.Close()
	}
}

func (c *life) books() *etcdguest.Ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger
}

// booksOf is what is written to the etcd of a cluster; nil where there is none.
func (w *World) booksOf(id string) *etcdguest.Ledger {
	at := slices.IndexFunc(w.lives, func(l *life) bool { return l.id == id })
	if at < 0 {
		return nil
	}
	return w.lives[at].books()
}

// kept: the members of etcd are those of the masters, and have all that was written.
func (c *life) kept(ctx context.Context, config *v1alpha1.KVMConfig) error {
	ledger := c.books()
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

// discard removes the disks of masters that are not there any more, but those of the first ones, which the next cluster of this id finds.
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

// resizeControlPlane has one master become three, three become one or five, and five three.
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

// replaceMaster has one of several masters give way to another one.
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

// freeze has some members of etcd stand still for a while, now and then a majority of them: then no one leads.
func (c *life) freeze(ctx context.Context) error {
	if !hasEtcd(c.id) {
		return nil
	}
	thaw := c.world.machines.Freeze(c.id, func(node string) bool {
		frozen := c.random.IntN(2) == 0
		if frozen {
			c.say("the member of %s stands still for a while", node)
		}
		return frozen
	})
	pause(ctx, c.some(8*time.Second))
	thaw()
	return nil
}

// fill has etcd be full. That there is room the operator has to find out.
func (c *life) fill(ctx context.Context) error {
	ledger := c.books()
	if ledger == nil || !ledger.Begun() {
		return nil
	}
	if err := ledger.Fill(ctx); err != nil {
		return nil //nolint:nilerr // members go and come: there is nobody who could be full
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

// seeMemberGo is called before the machine of a master is let go: etcd has a majority without it, unless it has no vote or is the only one
// that has. Members that crashed a moment ago count, for nobody can know that.
func (j *judge) seeMemberGo(ctx context.Context, ledger *etcdguest.Ledger, pod *corev1.Pod) {
	voters, err := ledger.Voters(ctx)
	if err != nil {
		return // there is no majority that could be lost
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
		j.violated("%s/%s: the machine is let go, and %d of the members of etcd are left: %+v", pod.Namespace, pod.Name, left, voters)
	}
}
