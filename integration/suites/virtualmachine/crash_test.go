package virtualmachine_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	"github.com/kvm-operator/kvm-operator/service"
)

// operation is a step in the life of a machine for which the operator needs several writes.
type operation struct {
	// from brings the machine, which is declared and stopped, to where the step begins; nil if it begins there.
	from func(t *testing.T, vm *v1.VirtualMachine)
	// do is what the user, or the guest, does.
	do func(t *testing.T, vm *v1.VirtualMachine)
	// done returns an error until the step is over.
	done func(t *testing.T, vm *v1.VirtualMachine) error
	// most is how many writes the step takes at most, events included and statuses left out.
	most int
	// deletions is how many pods are deleted in the step.
	deletions int
}

// mostStatuses is how many statuses a step writes at most. A pod starts in several steps, and how many of them the operator
// sees depends on how fast others are.
const mostStatuses = 12

func runs(t *testing.T, vm *v1.VirtualMachine) error {
	if current(t, vm).Status.Accelerator == "" {
		return errors.New("its runner has not reported")
	}
	return all(phaseIs(t, vm, v1.PhaseRunning), stateIs(t, vm, v1.StateRunning), isTrue(t, vm, "Ready"), isTrue(t, vm, "ChangesApplied"))
}

func isStopped(t *testing.T, vm *v1.VirtualMachine) error {
	return all(phaseIs(t, vm, v1.PhaseStopped), stateIs(t, vm, v1.StateStopped), replicasAre(t, vm, 0), isTrue(t, vm, "Ready"))
}

// started has a machine run.
func started(t *testing.T, vm *v1.VirtualMachine) {
	changed(func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateRunning })(t, vm)
	await(t, vm, "running", func() error { return runs(t, vm) })
}

func changed(by func(*v1.VirtualMachine)) func(*testing.T, *v1.VirtualMachine) {
	return func(t *testing.T, vm *v1.VirtualMachine) { lab.Change(t, theLab, vm, by) }
}

// guestShutDown has the guest of a running machine shut itself down, after which the machine is to be stopped or not.
func guestShutDown(stops bool) operation {
	o := operation{
		from: func(t *testing.T, vm *v1.VirtualMachine) {
			changed(func(vm *v1.VirtualMachine) { vm.Spec.GuestShutdownStops = stops })(t, vm)
			started(t, vm)
		},
		do: func(t *testing.T, vm *v1.VirtualMachine) {
			pod := podOf(vm)
			theLab.Get(t, pod)
			vm.Annotations = map[string]string{formerPod: string(pod.UID)} // in memory only
			shutDown(t, pod)
		},
		done: isStopped, most: 3, deletions: 1,
	}
	if !stops {
		o.done = func(t *testing.T, vm *v1.VirtualMachine) error {
			pod := podOf(vm)
			if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if string(pod.UID) == vm.Annotations[formerPod] {
				return errors.New("its pod is the former one")
			}
			return runs(t, vm)
		}
	}
	return o
}

const formerPod = "test/former-pod"

var operations = map[string]operation{
	"start": {do: changed(func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateRunning }), done: runs, most: 2},
	"stop":  {from: started, do: changed(func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateStopped }), done: isStopped, most: 1, deletions: 1},
	"change while it runs": {from: started, do: changed(func(vm *v1.VirtualMachine) {
		vm.Spec.VM.CurrentCPUs, vm.Spec.VM.PowerdownTimeout, vm.Spec.CloudInit.MetaData = ptr.To[int32](3), 60, map[string]string{"a": "b"}
	}), done: func(t *testing.T, vm *v1.VirtualMachine) error {
		if now := current(t, vm); now.Status.CPUs != 3 || now.Status.ObservedGeneration != now.Generation {
			return fmt.Errorf("it has %d CPUs", now.Status.CPUs)
		}
		return all(runs(t, vm), isTrue(t, vm, "RestartRequired"))
	}, most: 5},
	"other disks": {do: changed(func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks = vm.Spec.VM.Disks[1:] }), done: func(t *testing.T, vm *v1.VirtualMachine) error {
		return all(claimTemplatesAre(t, vm), isStopped(t, vm))
	}, most: 6},
	"guest shuts down and comes back":    guestShutDown(false),
	"guest shuts down and stays stopped": guestShutDown(true),
}

// TestMachinesSurviveACrashAtEveryWrite: after a crash at any write, and a restart, a machine is as without it. No pod was
// deleted more often than needed.
func TestMachinesSurviveACrashAtEveryWrite(t *testing.T) {
	top, number := t, 0 // operators outlive subtests
	operator := serve(top)
	for name, o := range operations {
		number++
		t.Run(name, func(t *testing.T) {
			calm := prepare(t, o, fmt.Sprintf("x%dcalm", number))
			operator.Stop()
			operator = serve(top)
			o.do(t, calm)
			await(t, calm, "done", func() error { return o.done(t, calm) })
			want, deletions, writes := dump(t, calm), podDeletions(t, calm), len(operator.Requests.Writes())
			theLab.Delete(t, calm)
			if len(deletions) != o.deletions {
				t.Errorf("pods were deleted by %q, want %d deletions", deletions, o.deletions)
			}
			statuses := len(operator.Requests.Statuses())
			if t.Logf("%d writes, %d of them of statuses", writes, statuses); writes-statuses > o.most || statuses > mostStatuses {
				t.Errorf("there are more than %d writes and %d statuses: %v", o.most, mostStatuses, operator.Requests.Writes())
			}
			for k := 1; k <= writes; k++ {
				t.Run(fmt.Sprintf("write %d", k), func(t *testing.T) {
					vm := prepare(t, o, fmt.Sprintf("x%dw%d", number, k))
					operator.Stop()
					crash(t, o, vm, k)
					operator = serve(top)
					await(t, vm, "done", func() error { return o.done(t, vm) })
					lab.Eventually(t, 10*time.Second, func() error {
						if diff := cmp.Diff(want, dump(t, vm)); diff != "" {
							return fmt.Errorf("not as without a crash (-calm +crashed):\n%s", diff)
						}
						return nil
					})
					if got := podDeletions(t, vm); len(got) != o.deletions {
						t.Errorf("its pods were deleted by %q, and without a crash by %q", got, deletions)
					}
					theLab.Delete(t, vm)
				})
			}
		})
	}
}

// prepare brings a machine to where the step begins.
func prepare(t *testing.T, o operation, name string) *v1.VirtualMachine {
	t.Helper()
	vm := machine(name)
	vm.Spec.CloudInit = &v1.CloudInit{}
	theLab.Create(t, volume(name+"-system"))
	theLab.Create(t, vm)
	await(t, vm, "stopped", func() error { return isStopped(t, vm) })
	if o.from != nil {
		o.from(t, vm)
	}
	return vm
}

// podDeletions returns who deleted the pods of a machine. kwok, which ends pods that are being deleted, does not count: it
// deletes by name, and when it is slow, it deletes the successor of the pod as well.
func podDeletions(t *testing.T, vm *v1.VirtualMachine) []string {
	t.Helper()
	requests, err := theLab.Requests(func(r managementcluster.Request) bool {
		return r.Verb == "delete" && r.Code == http.StatusOK && r.User != "kwok" &&
			r.Resource == "pods" && r.Namespace == vm.Namespace && r.Name == podOf(vm).Name
	})
	if err != nil {
		t.Fatal(err)
	}
	deletions := make([]string, 0, len(requests))
	for _, r := range requests {
		deletions = append(deletions, r.String())
	}
	return deletions
}

// crash runs an operator that crashes at the k-th write of a step. The last writes may not come, because some depend on
// how fast others are: then the step is over.
func crash(t *testing.T, o operation, vm *v1.VirtualMachine, k int) {
	t.Helper()
	c := &lab.Crash{K: k}
	operator, err := theLab.StartOperator(withMachines, func(config *service.Config) {
		config.REST = rest.CopyConfig(theLab.RESTConfig())
		config.REST.Wrap(c.Transport)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = operator.Close() }() // it has crashed
	o.do(t, vm)
	await(t, vm, fmt.Sprintf("at write %d", k), func() error {
		if c.Crashed() {
			return nil
		}
		return o.done(t, vm)
	})
}

var (
	instanceID = regexp.MustCompile(`\bv[0-9]+\b`)
	times      = regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]+Z`)
)

// dump returns all that the operator has made of a machine, without what differs between machines.
func dump(t *testing.T, vm *v1.VirtualMachine) (lines []string) {
	t.Helper()
	now := current(t, vm)
	for i := range now.Status.Conditions {
		now.Status.Conditions[i].ObservedGeneration = 0
	}
	now.Status.ObservedGeneration, now.Status.Node, now.Status.PodIP = 0, "", ""
	add := func(parts ...any) {
		text, err := yaml.Marshal(parts)
		if err != nil {
			t.Fatal(err)
		}
		masked := strings.NewReplacer(vm.Name, "NAME", string(vm.UID), "UID").Replace(string(text))
		lines = append(lines, strings.Split(times.ReplaceAllString(instanceID.ReplaceAllString(masked, "INSTANCE"), "TIME"), "\n")...)
	}
	add(now.Spec, now.Status)
	set := setOf(vm)
	theLab.Get(t, set)
	set.Spec.Template.Annotations = nil // hashes of what differs between machines
	add(set.Labels, set.Spec)
	configs, secrets, claims := &corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}
	for _, list := range []client.ObjectList{configs, secrets, claims} {
		if err := theLab.Client.List(t.Context(), list, client.InNamespace(vm.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
	for _, item := range configs.Items {
		if isOf(vm, &item) {
			add(item.Name, item.Data)
		}
	}
	for _, item := range secrets.Items {
		if isOf(vm, &item) {
			for _, name := range slices.Sorted(maps.Keys(item.Data)) {
				content := string(item.Data[name])
				if name == vmconfig.DisplayPassword {
					content = fmt.Sprintf("%d random bytes", len(content))
				}
				add(item.Name, name, content)
			}
		}
	}
	for _, item := range claims.Items {
		if isOf(vm, &item) {
			add(item.Name, item.Labels, item.Spec.VolumeName)
		}
	}
	return lines
}

// isOf returns whether an object belongs to a machine.
func isOf(vm *v1.VirtualMachine, object metav1.Object) bool {
	return object.GetLabels()["app.kubernetes.io/instance"] == vm.Name || strings.HasPrefix(object.GetName(), vm.Name+"-") || object.GetName() == vm.Name
}
