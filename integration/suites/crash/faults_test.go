package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
)

// seeds is the number of seeds, each with other random faults, that each operation is tested with.
const seeds = 6

func TestFaultyAPIServerEndsAsACalmOne(t *testing.T) {
	driver := theLab.Driver(t)
	number := 0
	for name, o := range operations {
		number++
		t.Run(name, func(t *testing.T) {
			calm := prepare(t, driver, o, fmt.Sprintf("f%dc", number))
			driver.Instance(t, lab.InstanceOptions{}).Settle(t, calm, o.done)
			want := theLab.Dump(t, calm)
			for seed := range uint64(seeds) {
				id := fmt.Sprintf("f%ds%d", number, seed)
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					t.Parallel()
					config := prepare(t, driver, o, id)
					faults := &lab.Faults{Random: rand.New(rand.NewPCG(seed, 1)), Rate: 0.3}
					operator := driver.Instance(t, lab.InstanceOptions{Transport: faults.Transport})
					for range 30 {
						_ = operator.Reconcile(context.Background(), config) // errors are expected here
					}
					faults.Stop()
					operator.Settle(t, config, o.done)
					if diff := cmp.Diff(want, theLab.Dump(t, config)); diff != "" {
						t.Errorf("not as with a calm API server (-calm +faulty):\n%s", diff)
					}
					t.Logf("%d requests, %d of them met a fault", len(operator.Requests.All()), faults.Count())
				})
			}
		})
	}
}
