package vitistack_test

import (
	"encoding/json"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// FuzzPlan: no spec makes the planning fail, also none that an older definition let through.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"template":"small"}`, `{"template":"huge","disks":[{},{"name":"root"},{"size":"x"}]}`,
		`{"memory":-1,"cpu":{"cores":-5},"disks":[{"name":"","sizeGB":-3}],"os":{"imageID":7}}`,
		`{"resources":{"memory":{"size":"-1Gi"}},"networks":[{"name":"","macAddress":"zz"},{"networkName":"lan"}],"bootOrder":["disk","disk","x"]}`,
		`{"cloudInit":{"userDataBase64":"%%","secretRef":{"name":""}},"domain":{"firmware":{"bootloader":{"secureBoot":true}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec v1alpha1.MachineSpec
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		o := observe(spec)
		o.Networks = map[string]*v1alpha1.NetworkConfiguration{"lan": network("lan", "br1", 1)}
		first, second := vitistack.Plan(o), vitistack.Plan(o)
		same(t, "the second plan", said(first), said(second))
		same(t, "its disks", shownAll(first), shownAll(second))
		vitistack.MACsOf(o.Machine, 1)
		if len(first.Problems) == 0 && (first.Wanted.Memory.Sign() <= 0 || first.Wanted.CPU.Cores < 1 || len(first.Wanted.Interfaces) == 0) {
			t.Errorf("nothing is wrong with %s, and %+v is wanted", text, first.Wanted)
		}
	})
}
