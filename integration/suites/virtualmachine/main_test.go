// Package virtualmachine_test tests the controller of VirtualMachines with a real API server and the real controllers of
// StatefulSets and volumes. Hosts are simulated, and the tests play the kubelets and runners.
package virtualmachine_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/service"
)

var (
	theLab     *lab.Lab
	theRunners lab.FakeRunners
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	theLab, err = lab.Start(context.Background(), managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true, Audit: true})
	if err == nil {
		_, err = theLab.AddNodes(context.Background(), 2, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the management cluster:", err)
		return 1
	}
	code := m.Run()
	if err := theLab.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the management cluster:", err)
		return 1
	}
	return code
}

// serve runs an operator with VirtualMachines.
func serve(t *testing.T) *lab.Operator {
	t.Helper()
	return theLab.Run(t, withMachines)
}

func withMachines(c *service.Config) {
	c.Link = theRunners.Dial
	c.VirtualMachines = &virtualmachine.Settings{RunnerImage: "registry.example.org/runner:4.0.0", DeviceResources: nil}
}
