package scale_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
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

// The bounds of 1,000 Machines: their memory, and how the time grows with their number.
const (
	most1000   = 40 << 20
	mostGrowth = 1.05
)

// kubeVirtCost is the cost of a number of Machines. The time and the requests of machineCost are those until all objects of
// the Machines exist.
type kubeVirtCost struct {
	machineCost
	// writes are those until all Machines run, events apart, and plain is the time in which a plain client creates the
	// same objects.
	writes int
	plain  time.Duration
}

// per returns a number of all Machines for one.
func (c kubeVirtCost) per(number int) float64 { return float64(number) / float64(c.machines) }

// memory returns the memory of 1,000 Machines in bytes.
func (c kubeVirtCost) memory() float64 { return c.per(int(c.heap)) * thousand }

// BenchmarkMachines measures the operator with 100 and 1,000 Machines, or as many as the variable MACHINES says, each number
// on a separate API server, until all objects exist, until all Machines run, and for a minute in which nothing happens. It
// compares with a client that only creates the same objects.
func BenchmarkMachines(b *testing.B) {
	numbers := []int{100, thousand}
	if n, err := strconv.Atoi(os.Getenv("MACHINES")); err == nil {
		numbers = []int{n}
	}
	for b.Loop() {
		var costs []kubeVirtCost
		for _, n := range numbers {
			fmt.Fprintf(os.Stderr, "measuring %d Machines\n", n)
			costs = append(costs, measureMachinesOnKubeVirt(b, n, time.Minute))
		}
		reportMachines(b, costs)
	}
}

// TestMachinesInSmall keeps that benchmark working, with so many Machines that caches outweigh the rest.
func TestMachinesInSmall(t *testing.T) {
	c := measureMachinesOnKubeVirt(t, 100, atRest/4)
	reportMachines(t, []kubeVirtCost{c})
	if posts := c.requests["POST"]; c.plain == 0 || posts < 2*c.machines {
		t.Errorf("nothing was measured: %+v", c)
	}
}

// reportMachines prints the costs, and fails the test where a count or the memory exceeds its bound.
func reportMachines(b testing.TB, costs []kubeVirtCost) {
	b.Helper()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Machines\tPOST each\tPUT each\tPATCH each\tGET each\tevents each\twrites each until Running\ttime\tplain client\tratio\tMiB per 1,000\trequests at rest\t")
	for _, c := range costs {
		fmt.Fprintf(w, "%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f s\t%.1f s\t%.2f\t%.1f\t%d\t\n", c.machines,
			c.per(c.requests["POST"]), c.per(c.requests["PUT"]), c.per(c.requests["PATCH"]), c.per(c.requests["GET"]), c.per(c.requests[events]), c.per(c.writes),
			c.took.Seconds(), c.plain.Seconds(), c.took.Seconds()/c.plain.Seconds(), c.memory()/(1<<20), c.rest)
		if c.memory() > most1000 {
			b.Errorf("%d Machines: more than %d MiB per 1,000", c.machines, most1000>>20)
		}
		if c.rest > 0 {
			b.Errorf("%d Machines: %d requests at rest", c.machines, c.rest)
		}
	}
	if err := w.Flush(); err != nil {
		b.Error(err)
	}
	if few, many := costs[0], costs[len(costs)-1]; few.machines < many.machines {
		growth := math.Log(many.took.Seconds()/few.took.Seconds()) / math.Log(float64(many.machines)/float64(few.machines))
		fmt.Printf("the time grows with the number of Machines to the power of %.2f (target %.2f)\n", growth, mostGrowth)
	}
}

// measureMachinesOnKubeVirt runs an operator on KubeVirt's real definitions. Its programs do not run: guests are written as
// they write them, see guestOf, and claims stay unbound. At the end nothing happens for the time quiet.
func measureMachinesOnKubeVirt(b testing.TB, n int, quiet time.Duration) kubeVirtCost {
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
	stop := sync.OnceFunc(operate(b, cluster, recorder))
	defer stop()
	create(b, api, machineOf(-1))
	giveGuests(b, api, 1)
	recorder.Reset() // what the operator asks once
	c := kubeVirtCost{machineCost: machineCost{machines: n, requests: map[string]int{}}}
	empty, start := heap(), time.Now()
	each(n, func(i int) { create(b, api, machineOf(i)) })
	awaitMachines(b, api, n+1)
	c.took = time.Since(start)
	for _, r := range recorder.All() {
		if isEvent(r) {
			c.requests[events]++
		} else {
			c.requests[r.Method]++
		}
	}
	giveGuests(b, api, n+1)
	time.Sleep(atRest / 4) // details of statuses wait a moment
	for _, r := range recorder.All() {
		if r.Write() && !isEvent(r) {
			c.writes++
		}
	}
	recorder.Reset() // the record has the bodies of requests
	c.heap = heap() - empty
	time.Sleep(quiet)
	c.rest = len(recorder.All())
	stop()
	c.plain = postSameMachines(b, api)
	return c
}

// events counts the requests about events, whatever their verb.
const events = "events"

func isEvent(r lab.Request) bool { return strings.Contains(r.Path, "/events") }

// postSameMachines creates copies of the objects of Machines under other names, as fast as a plain client can.
func postSameMachines(b testing.TB, api client.Client) time.Duration {
	b.Helper()
	list, claims := &kubevirtv1.VirtualMachineList{}, &corev1.PersistentVolumeClaimList{}
	if err := errors.Join(api.List(context.Background(), list), api.List(context.Background(), claims)); err != nil {
		b.Fatal(err)
	}
	vms := list.Items
	claimOf := map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims.Items {
		claimOf[claims.Items[i].Name] = &claims.Items[i]
	}
	copies := make([][]client.Object, len(vms))
	for i := range vms {
		name := vms[i].Name
		for _, object := range []client.Object{claimOf[name+"-root"], &vms[i]} {
			copies[i] = append(copies[i], renamed(b, object, name, "plain"+name))
		}
	}
	start := time.Now()
	each(len(copies), func(i int) {
		for _, object := range copies[i] {
			create(b, api, object)
		}
	})
	return time.Since(start)
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

// awaitMachines waits until there are so many VirtualMachines, which are the last objects of Machines.
func awaitMachines(b testing.TB, api client.Client, n int) {
	b.Helper()
	lab.Eventually(b, timeout, func() error {
		names := &metav1.PartialObjectMetadataList{}
		names.SetGroupVersionKind(kubevirtv1.VirtualMachineGroupVersionKind)
		if err := api.List(context.Background(), names); err != nil {
			return err
		}
		if len(names.Items) < n {
			time.Sleep(100 * time.Millisecond) // a list costs the API server time
			return fmt.Errorf("there are %d of %d VirtualMachines", len(names.Items), n)
		}
		return nil
	})
}

// giveGuests gives every VirtualMachine a guest, if it has none, and waits until so many Machines run.
func giveGuests(b testing.TB, api client.Client, n int) {
	b.Helper()
	awaitMachines(b, api, n)
	vms := &kubevirtv1.VirtualMachineList{}
	if err := api.List(context.Background(), vms); err != nil {
		b.Fatal(err)
	}
	each(len(vms.Items), func(i int) {
		if err := client.IgnoreAlreadyExists(api.Create(context.Background(), guestOf(&vms.Items[i]))); err != nil {
			b.Error(err)
		}
	})
	lab.Eventually(b, timeout, func() error {
		all := &v1alpha1.MachineList{}
		if err := api.List(context.Background(), all); err != nil {
			return err
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
