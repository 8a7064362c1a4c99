package scale_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

// most1000 is the target of the memory of 1,000 Machines.
const most1000 = 40 << 20

// BenchmarkMachines measures the memory of the operator for 1,000 Machines with their guests, or as many as the variable
// MACHINES says.
func BenchmarkMachines(b *testing.B) {
	n := thousand
	if number, err := strconv.Atoi(os.Getenv("MACHINES")); err == nil {
		n = number
	}
	for b.Loop() {
		c := measureMachinesOnKubeVirt(b, n)
		b.ReportMetric(float64(c.heap)/float64(c.machines)*thousand/(1<<20), "MiB/1,000")
		b.ReportMetric(c.took.Seconds(), "s-until-Running")
		for verb, number := range c.requests {
			b.ReportMetric(float64(number)/float64(c.machines), verb+"-each")
		}
	}
}

// TestMachinesInSmall keeps that benchmark working, with so many Machines that caches outweigh the rest.
func TestMachinesInSmall(t *testing.T) {
	c := measureMachinesOnKubeVirt(t, 100)
	each := float64(c.heap) / float64(c.machines)
	t.Logf("%+v: %.1f MiB for 1,000 (target %d)", c, each*thousand/(1<<20), most1000>>20)
	if each*thousand > most1000 {
		t.Error("that is too much")
	}
	if c.rest > 0 {
		t.Errorf("%d requests at rest", c.rest)
	}
}

// measureMachinesOnKubeVirt runs an operator on KubeVirt's real definitions. Its programs do not run: guests are written as
// they write them, see guestOf.
func measureMachinesOnKubeVirt(b testing.TB, n int) machineCost {
	b.Helper()
	ctrl.SetLogger(logr.Discard())
	cluster, err := managementcluster.Start(context.Background(), managementcluster.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	}()
	b.Setenv("KUBEBUILDER_ASSETS", cluster.Tools())
	api := withMachines(b, cluster)
	recorder := &lab.Recorder{}
	stop := operate(b, cluster, recorder)
	defer stop()
	c := machineCost{machines: n}
	create(b, api, machineOf(-1))
	awaitGuests(b, api, 1)
	empty, start := heap(), time.Now()
	each(n, func(i int) { create(b, api, machineOf(i)) })
	awaitGuests(b, api, n+1)
	c.took, c.requests = time.Since(start), map[string]int{}
	for _, r := range recorder.All() {
		c.requests[r.Method]++
	}
	time.Sleep(atRest / 4)
	recorder.Reset() // the record has the bodies of requests
	c.heap = heap() - empty
	time.Sleep(atRest / 4)
	c.rest = len(recorder.All())
	return c
}

// withMachines installs definitions and a storage class, and returns a client.
func withMachines(b testing.TB, cluster *managementcluster.Cluster) client.Client {
	b.Helper()
	_, file, _, _ := runtime.Caller(0)
	crds := filepath.Join(filepath.Dir(file), "..", "..", "..", "helm", "kubevirt-operator", "crds")
	all, err := definitions.KubeVirt(context.Background(), definitions.VirtualMachines, definitions.VirtualMachineInstances)
	if err == nil {
		_, err = envtest.InstallCRDs(cluster.RESTConfig(), envtest.CRDInstallOptions{
			Paths: []string{crds}, ErrorIfPathMissing: true, CRDs: append(all, definitions.Multus()), MaxTime: time.Minute,
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	scheme, err := machines.NewScheme()
	if err != nil {
		b.Fatal(err)
	}
	config := cluster.RESTConfig()
	config.QPS = -1
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	create(b, api, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
	}, Provisioner: "none.example.org"})
	return api
}

func create(b testing.TB, api client.Client, object client.Object) {
	if err := api.Create(context.Background(), object); err != nil {
		b.Error(err)
	}
}

// operate runs an operator until the returned function is called.
func operate(b testing.TB, cluster *managementcluster.Cluster, recorder *lab.Recorder) func() {
	b.Helper()
	config := machines.Config{REST: rest.CopyConfig(cluster.RESTConfig()), Settings: vitistack.Settings{
		ManagedBy: "kubevirt-operator", AccessMode: "ReadWriteMany", VolumeMode: "Block", MACSet: 0x12, CNIVersion: "1.0.0",
	}}
	config.REST.Wrap(recorder.Transport)
	ctx, cancel := context.WithCancel(context.Background())
	service, err := machines.New(ctx, config)
	if err != nil {
		cancel()
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

func machineOf(i int) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("vm-%d", i)}}
	m.Spec.Template = "medium"
	m.Spec.CloudInit = &v1alpha1.CloudInit{UserData: "#cloud-config\npackages: [nginx]\n"}
	return m
}

// awaitGuests gives every VirtualMachine that has none a guest, until so many Machines run.
func awaitGuests(b testing.TB, api client.Client, n int) {
	b.Helper()
	given := map[string]bool{}
	lab.Eventually(b, timeout, func() error {
		vms, all := &kubevirtv1.VirtualMachineList{}, &v1alpha1.MachineList{}
		if err := errors.Join(api.List(context.Background(), vms), api.List(context.Background(), all)); err != nil {
			return err
		}
		for i := range vms.Items {
			vm := &vms.Items[i]
			if given[vm.Name] {
				continue
			}
			given[vm.Name] = true
			if err := client.IgnoreAlreadyExists(api.Create(context.Background(), guestOf(vm))); err != nil {
				return err
			}
		}
		running := 0
		for i := range all.Items {
			if all.Items[i].Status.Phase == v1alpha1.PhaseRunning {
				running++
			}
		}
		if running < n {
			time.Sleep(500 * time.Millisecond)
			return fmt.Errorf("%d of %d Machines run", running, n)
		}
		return nil
	})
}

// guestOf returns a guest as virt-controller and virt-handler write it, which has no status subresource.
func guestOf(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineInstance {
	now, template := metav1.Now(), vm.Spec.Template
	guest := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: vm.Name, Labels: template.ObjectMeta.Labels, Finalizers: []string{"kubevirt.io/foregroundDeleteVirtualMachine"},
		Annotations:     map[string]string{"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1", "kubevirt.io/vm-generation": "1"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)},
	}, Spec: *template.Spec.DeepCopy()}
	guest.Spec.Architecture = "amd64"
	guest.Status = kubevirtv1.VirtualMachineInstanceStatus{
		Phase: kubevirtv1.Running, NodeName: "node-1", LauncherContainerImageVersion: "registry.example.org/kubevirt/virt-launcher:v1.8.4",
		GuestOSInfo: kubevirtv1.VirtualMachineInstanceGuestOSInfo{Name: "Debian GNU/Linux", Version: "13", KernelRelease: "6.12.41"},
		Interfaces: []kubevirtv1.VirtualMachineInstanceNetworkInterface{{
			Name: "default", MAC: guest.Spec.Domain.Devices.Interfaces[0].MacAddress, IP: "10.244.0.7", IPs: []string{"10.244.0.7", "fd00::7"},
			InfoSource: "domain, guest-agent", InterfaceName: "eth0", QueueCount: 1,
		}},
		VolumeStatus: []kubevirtv1.VolumeStatus{
			{Name: "root", Target: "vda", PersistentVolumeClaimInfo: &kubevirtv1.PersistentVolumeClaimInfo{ClaimName: vm.Name + "-root"}},
			{Name: "cloudinitdisk", Target: "vdb", Size: 1 << 20},
		},
	}
	for _, phase := range []kubevirtv1.VirtualMachineInstancePhase{kubevirtv1.Pending, kubevirtv1.Scheduling, kubevirtv1.Scheduled, kubevirtv1.Running} {
		guest.Status.PhaseTransitionTimestamps = append(guest.Status.PhaseTransitionTimestamps, kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: now})
	}
	for _, kind := range []kubevirtv1.VirtualMachineInstanceConditionType{
		kubevirtv1.VirtualMachineInstanceReady, kubevirtv1.VirtualMachineInstanceAgentConnected, kubevirtv1.VirtualMachineInstanceIsMigratable,
	} {
		guest.Status.Conditions = append(guest.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now})
	}
	return guest
}
