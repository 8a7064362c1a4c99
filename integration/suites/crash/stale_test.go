package crash_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

var errBehind = errors.New("the reader is still behind")

func TestStaleReadsLoseAndDoubleNothing(t *testing.T) {
	driver := theLab.Driver(t)
	number := 0
	for name, o := range operations {
		number++
		for _, versions := range []int{1, 3} {
			id := fmt.Sprintf("s%dv%d", number, versions)
			t.Run(fmt.Sprintf("%s, %d versions behind", name, versions), func(t *testing.T) {
				t.Parallel()
				calm := prepare(t, driver, o, id+"c")
				driver.Instance(t, lab.InstanceOptions{}).Settle(t, calm, o.done)

				late := driver.Lag(t, id+"s", versions)
				config := prepare(t, driver, o, id+"s")
				operator := driver.Instance(t, lab.InstanceOptions{Reader: func(c client.Client) client.Client { late.Client = c; return late }})
				operator.Settle(t, config, func(config *v1alpha1.KVMConfig) error {
					uniqueIndexes(t, config)
					if !late.Caught() {
						return errBehind
					}
					return o.done(config)
				})
				if diff := cmp.Diff(theLab.Dump(t, calm), theLab.Dump(t, config)); diff != "" {
					t.Errorf("not as with a fresh reader (-fresh +stale):\n%s", diff)
				}
			})
		}
	}
}

// uniqueIndexes fails when two nodes share an index.
func uniqueIndexes(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	current := &v1alpha1.KVMConfig{}
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), current); err != nil || current.Status.KVM == nil {
		return // deleted or without status: no index can be duplicated
	}
	seen := map[int32]string{}
	for node, index := range current.Status.KVM.NodeIndexes {
		if other, ok := seen[index]; ok {
			t.Errorf("nodes %s and %s both have index %d", node, other, index)
		}
		seen[index] = node
	}
}
