package scale_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/service"
)

// machineCost is the cost of a number of VirtualMachines.
type machineCost struct {
	machines int
	requests map[string]int
	took     time.Duration
	heap     int64 // of the operator and the fake runners
	rest     int   // requests while nothing happens
}

// atRest is for how long nothing happens.
const atRest = 20 * time.Second

// BenchmarkVirtualMachines runs 1,000 VirtualMachines, or as many as the variable VMS says, on simulated hosts, with links
// to fake runners, and measures the operator until all are Ready, and while nothing happens.
func BenchmarkVirtualMachines(b *testing.B) {
	n := thousand
	if number, err := strconv.Atoi(os.Getenv("VMS")); err == nil {
		n = number
	}
	for b.Loop() {
		c := measureMachines(b, n)
		b.ReportMetric(float64(c.heap)/float64(c.machines)*thousand/(1<<20), "MiB/1,000")
		b.ReportMetric(c.took.Seconds(), "s-until-Ready")
		b.ReportMetric(float64(c.rest), "requests-at-rest")
		for verb, number := range c.requests {
			b.ReportMetric(float64(number)/float64(c.machines), verb+"-each")
		}
	}
}

// TestVirtualMachinesInSmall keeps that benchmark working.
func TestVirtualMachinesInSmall(t *testing.T) {
	c := measureMachines(t, 5)
	t.Logf("%+v", c)
	if writes := c.requests["POST"] + c.requests["PUT"] + c.requests["PATCH"]; writes == 0 || writes > 5*20 {
		t.Errorf("5 machines took %d writes", writes)
	}
	if c.rest > 0 {
		t.Errorf("%d requests at rest", c.rest)
	}
}

func measureMachines(b testing.TB, n int) machineCost {
	b.Helper()
	l, err := lab.Start(context.Background(), managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := l.Stop(); err != nil {
			b.Error(err)
		}
	}()
	if _, err := l.AddNodes(context.Background(), 1+n/podsPerNode, nil); err != nil {
		b.Fatal(err)
	}
	var runners lab.FakeRunners
	operator := l.Run(b, func(c *service.Config) {
		c.Link = runners.Dial
		c.VirtualMachines = &virtualmachine.Settings{RunnerImage: "registry.example.org/runner:4.0.0", AllowEmulation: true}
	})
	defer operator.Stop()
	awaitQuiet(operator)
	c := machineCost{machines: n}
	empty, start := heap(), time.Now()
	each(n, func(i int) {
		if err := l.Client.Create(context.Background(), bareMachine(i)); err != nil {
			b.Error(err)
		}
	})
	awaitRunning(b, l, n)
	c.took, c.requests = time.Since(start), byVerb(operator)
	time.Sleep(atRest / 4)    // the status of the last report
	operator.Requests.Reset() // the record has the bodies of requests
	c.heap = heap() - empty
	time.Sleep(atRest)
	c.rest = len(operator.Requests.All())
	return c
}

// podsPerNode is how many pods a simulated node takes.
const podsPerNode = 100

// bareMachine returns a machine without a disk of its own.
func bareMachine(i int) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("vm-%d", i)},
		Spec: v1.VirtualMachineSpec{
			CloudInit: &v1.CloudInit{UserData: &runtime.RawExtension{Raw: []byte(`{"packages":["nginx"]}`)}},
			Resources: &v1.Resources{},
			VM: v1.VM{
				State: v1.StateRunning, MaximumCPUs: ptr.To[int32](1), MaximumRAM: "64Mi", Firmware: v1.FirmwareBIOS, Acceleration: v1.AccelerationTCG,
				Display: &v1.Display{}, Networks: []v1.Network{{User: &v1.UserNetwork{}}},
			},
		},
	}
}

// awaitRunning waits until all machines are Ready, and their runners have reported.
func awaitRunning(b testing.TB, l *lab.Lab, n int) {
	b.Helper()
	poll.Eventually(b, timeout, time.Second, func() error {
		vms := &v1.VirtualMachineList{}
		if err := l.Client.List(context.Background(), vms); err != nil {
			return err
		}
		ready := 0
		for _, vm := range vms.Items {
			if meta.IsStatusConditionTrue(vm.Status.Conditions, "Ready") && vm.Status.Accelerator != "" {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d of %d machines are Ready", ready, n)
		}
		return nil
	})
}
