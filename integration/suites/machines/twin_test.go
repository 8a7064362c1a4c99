package machines_test

import (
	"fmt"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	providerv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestAClusterAndAMachineOfOneNameLeaveEachOtherAlone is the second part of K12: a KVMConfig and a Machine of one name in
// one namespace, with both operators at work. Neither prunes objects of the other one.
func TestAClusterAndAMachineOfOneNameLeaveEachOtherAlone(t *testing.T) {
	p := together(t)
	l, err := lab.On(cluster)
	if err != nil {
		t.Fatal(err)
	}
	daemon := l.Run(t)
	config := fixture.MakeCluster("twin").Obj()
	config.Namespace = p.namespace
	l.Create(t, config)
	m := p.machine("twin", "{template: small}")
	p.await(m, runs)
	var objects int
	p.until(func() error {
		// The finalizers, the namespace of the cluster and what is in it.
		if objects = len(l.Objects(t, config)); objects < 8 {
			return fmt.Errorf("the KVMConfig has %d objects", objects)
		}
		return l.Observed(config)
	})
	uid := p.vmi(m).UID
	p.stays(m)
	if got := fmt.Sprint(p.claims(m)); got != "[twin-root]" || p.vmi(m).UID != uid {
		t.Errorf("the Machine has claims %s and guest %s, once %s", got, p.vmi(m).UID, uid)
	}
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.intervals(2)
	if now := len(l.Objects(t, config)); now < objects {
		t.Errorf("the KVMConfig has %d objects, and had %d before the Machine was deleted", now, objects)
	}
	daemon.Stop()
	// No operator is left that would remove its finalizers.
	lab.Change(t, l, config, func(c *providerv1alpha1.KVMConfig) { c.Finalizers = nil })
	l.Delete(t, config)
}
