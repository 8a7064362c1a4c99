package machines_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// atRest is how long an operator that is at rest is watched for requests.
const atRest = 4 * interval

// quiet waits until an operator sends no request over some passes. One that never comes to rest fails the test.
func (w *world) quiet() {
	w.Helper()
	w.until("the operator is at rest", func() error {
		w.requests()
		time.Sleep(atRest) // the absence of requests has no event
		if sent := w.requests(); len(sent) > 0 {
			return fmt.Errorf("requests at rest: %v", sent)
		}
		return nil
	})
}

// TestAMachineRuns: its objects appear, and its status follows what KubeVirt says. After that nothing is asked.
func TestAMachineRuns(t *testing.T) {
	w := newWorld(t)
	w.kubeVirt()
	w.machine("first")
	exists(w, &kubevirtv1.VirtualMachine{ObjectMeta: w.named("first")}) // the operator knows KubeVirt by now
	m := w.machine("a")
	vm := exists(w, &kubevirtv1.VirtualMachine{ObjectMeta: w.named("a")})
	w.says(m, v1alpha1.PhaseCreating, v1alpha1.ReasonCreating)
	if !slices.Contains(m.Finalizers, v1alpha1.Finalizer) || m.Status.VMName != "a" {
		t.Errorf("finalizers %v, VM %q", m.Finalizers, m.Status.VMName)
	}
	if vm.Labels[v1alpha1.LabelMachine] != "a" || !metav1.IsControlledBy(vm, m) {
		t.Errorf("labels %v, owners %v of the VirtualMachine", vm.Labels, vm.OwnerReferences)
	}
	w.bind(&corev1.PersistentVolumeClaim{ObjectMeta: w.named("a-root")})
	w.runs("a")
	w.says(m, v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
	if m.Status.NodeName != "node-a" || !slices.Equal(m.Status.IPAddresses, []string{"10.0.0.7"}) {
		t.Errorf("node %q, addresses %v", m.Status.NodeName, m.Status.IPAddresses)
	}
	sent := ofMachine(w.requests(), w.namespace, "a")
	reads := about(sent, "GET")
	t.Logf("%d writes and %d reads from created to Running: %v", len(sent)-len(reads), len(reads), sent)
	if len(reads) > 0 || len(sent) > 7 {
		t.Errorf("%d writes and %d reads, want at most 7 and 0: %v", len(sent)-len(reads), len(reads), sent)
	}
	w.quiet()
}

// ofMachine returns the requests about a Machine. Of what is created by POST, whose path has no name, half are those of the
// only other Machine.
func ofMachine(sent []string, namespace, name string) []string {
	var own []string
	posts := map[string]int{}
	for _, request := range about(sent, namespace) {
		switch posts[request]++; {
		case strings.HasPrefix(request, "POST"):
			if posts[request]%2 == 0 {
				own = append(own, request)
			}
		case strings.HasSuffix(request, "/"+name), strings.Contains(request, "/"+name+"/"), strings.Contains(request, "/"+name+"-"):
			own = append(own, request)
		}
	}
	return own
}

// TestKubeVirtComesAndGoes: a Machine says so, runs once KubeVirt is installed, and can be deleted when it is gone.
func TestKubeVirtComesAndGoes(t *testing.T) {
	w := newWorld(t)
	m := w.machine("a")
	w.says(m, v1alpha1.PhaseCreating, v1alpha1.KubeVirtAPIError)
	if ready, why := w.service.Ready(); !ready {
		t.Errorf("the operator is not ready: %s", why)
	}
	w.quiet()
	w.kubeVirt()
	exists(w, &kubevirtv1.VirtualMachine{ObjectMeta: w.named("a")})
	w.says(m, v1alpha1.PhaseCreating, v1alpha1.ReasonCreating)
	w.do(undefine(definitions.VirtualMachines))
	w.says(m, v1alpha1.PhaseCreating, v1alpha1.KubeVirtAPIError)
	w.do(direct.Delete(t.Context(), m))
	w.release("a-root")
	w.gone(m)
}

// release plays the part of the controller that protects claims: it lets one go that is being deleted.
func (w *world) release(name string) {
	w.Helper()
	w.until("claim "+name+" is being deleted", func() error {
		claim, err := get(w, &corev1.PersistentVolumeClaim{ObjectMeta: w.named(name)})
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		if claim.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		claim.Finalizers = nil
		return client.IgnoreNotFound(direct.Update(w.Context(), claim))
	})
}

// TestAForeignVirtualMachineIsUntouched, also when the Machine is deleted; the Machine recovers when it is gone.
func TestAForeignVirtualMachineIsUntouched(t *testing.T) {
	w := newWorld(t)
	w.kubeVirt()
	foreign := &kubevirtv1.VirtualMachine{ObjectMeta: w.named("a"), Spec: kubevirtv1.VirtualMachineSpec{Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}}}
	w.until("KubeVirt's kinds are served", func() error { return direct.Create(t.Context(), foreign) })
	m := w.machine("a")
	w.says(m, v1alpha1.PhaseFailed, v1alpha1.NameConflict)
	w.quiet()
	w.do(direct.Delete(t.Context(), m))
	w.gone(m)
	if now, err := get(w, &kubevirtv1.VirtualMachine{ObjectMeta: w.named("a")}); err != nil || now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the VirtualMachine was touched: %v %v", now.ObjectMeta, err)
	}
	m = w.machine("a")
	w.says(m, v1alpha1.PhaseFailed, v1alpha1.NameConflict)
	w.do(direct.Delete(t.Context(), foreign))
	w.says(m, v1alpha1.PhaseCreating, v1alpha1.ReasonCreating)
}

// onNetwork attaches a Machine to a network.
func onNetwork(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Spec.Networks = []v1alpha1.Network{{Name: "eth0", NetworkName: name}}
	}
}

// attachments waits until a network has the Machines attached.
func (w *world) attachments(network string, want ...string) *v1alpha1.NetworkConfiguration {
	w.Helper()
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: w.named(network)}
	w.until("attachments of "+network, func() error {
		if _, err := get(w, nc); err != nil {
			return err
		}
		var got []string
		for _, a := range nc.Status.Attachments {
			got = append(got, a.Machine)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
	return nc
}

// TestDeletionOrder: the guest, then its disks, then its place on the network, then the Machine.
func TestDeletionOrder(t *testing.T) {
	w := newWorld(t)
	w.kubeVirt()
	w.define(definitions.Multus())
	m := w.machine("a", onNetwork("lan"), func(m *v1alpha1.Machine) { m.Finalizers = []string{v1alpha1.FormerFinalizer} })
	w.says(m, v1alpha1.PhaseFailed, v1alpha1.NetworkConfigurationNotFound)
	w.do(direct.Create(t.Context(), &v1alpha1.NetworkConfiguration{ObjectMeta: w.named("lan"), Spec: v1alpha1.NetworkConfigurationSpec{VLAN: 7}}))
	attachment := exists(w, &multusv1.NetworkAttachmentDefinition{ObjectMeta: w.named("lan")})
	if !strings.Contains(attachment.Spec.Config, `"vlan":7`) {
		t.Errorf("config %s", attachment.Spec.Config)
	}
	w.says(m, v1alpha1.PhaseCreating, v1alpha1.ReasonCreating)
	w.bind(&corev1.PersistentVolumeClaim{ObjectMeta: w.named("a-root")})
	vm, vmi := w.runs("a")
	w.says(m, v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
	w.until("the address is shown", func() error {
		if nc := w.attachments("lan", "a"); nc.Status.Attachments[0].NodeName != "node-a" || len(nc.Status.Attachments[0].IPAddresses) != 1 {
			return fmt.Errorf("%+v", nc.Status.Attachments)
		}
		return nil
	})
	w.quiet()
	// KubeVirt holds the VirtualMachine until the guest is gone.
	w.do(direct.Patch(t.Context(), vm, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["kubevirt.io/test"]}}`))))
	w.do(direct.Delete(t.Context(), m))
	w.says(m, v1alpha1.PhaseRunning, v1alpha1.ReasonTerminating)
	w.until("the VirtualMachine is being deleted", func() error {
		if now, err := get(w, vm); err != nil || now.DeletionTimestamp == nil {
			return fmt.Errorf("%v %w", now.DeletionTimestamp, errors.Join(err))
		}
		return nil
	})
	w.claimStays("a-root")
	vm.Finalizers = nil
	w.do(direct.Update(t.Context(), vm))
	w.claimStays("a-root")
	w.do(direct.Delete(t.Context(), vmi))
	w.attachments("lan")
	w.release("a-root")
	w.gone(m)
	exists(w, &multusv1.NetworkAttachmentDefinition{ObjectMeta: w.named("lan")})
}

// claimStays fails the test if a claim is deleted over some passes.
func (w *world) claimStays(name string) {
	w.Helper()
	time.Sleep(2 * interval) // that nothing happens has no event
	if claim, err := get(w, &corev1.PersistentVolumeClaim{ObjectMeta: w.named(name)}); err != nil || claim.DeletionTimestamp != nil {
		w.Errorf("the claim is deleted before the guest is gone: %v", errors.Join(err))
	}
}

// TestASharedNetworkIsWrittenAFewTimes while many Machines come.
func TestASharedNetworkIsWrittenAFewTimes(t *testing.T) {
	w := newWorld(t)
	w.define(definitions.Multus())
	w.do(direct.Create(t.Context(), &v1alpha1.NetworkConfiguration{ObjectMeta: w.named("lan"), Spec: v1alpha1.NetworkConfigurationSpec{Bridge: "br7"}}))
	exists(w, &multusv1.NetworkAttachmentDefinition{ObjectMeta: w.named("lan")})
	began := time.Now()
	w.requests()
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("m%02d", i))
		w.machine(names[i], onNetwork("lan"))
	}
	w.attachments("lan", names...)
	took := time.Since(began)
	writes := len(about(w.requests(), "PUT /apis/vitistack.io/v1alpha1/namespaces/"+w.namespace+"/networkconfigurations/lan/status"))
	t.Logf("%d writes for %d Machines in %s", writes, len(names), took)
	if most := 2 + int(took.Seconds()*5); writes > most {
		t.Errorf("%d writes in %s, want at most %d", writes, took, most)
	}
}

// TestReferencedDataIsReadOnceAVersion, by name, and copied for KubeVirt.
func TestReferencedDataIsReadOnceAVersion(t *testing.T) {
	w := newWorld(t)
	w.kubeVirt()
	m := w.machine("a", func(m *v1alpha1.Machine) {
		m.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.DataReference{Name: "boot", Key: "cloud-config"}}
	})
	w.says(m, v1alpha1.PhasePending, v1alpha1.CloudInitSourceNotFound)
	w.quiet()
	for _, data := range []string{"#cloud-config\n", "#cloud-config\nhostname: a\n"} {
		secret := &corev1.Secret{ObjectMeta: w.named("boot")}
		if _, err := get(w, secret); err == nil {
			secret.Data = map[string][]byte{"cloud-config": []byte(data)}
			w.do(direct.Update(t.Context(), secret))
		} else {
			secret.StringData = map[string]string{"cloud-config": data}
			w.do(direct.Create(t.Context(), secret))
		}
		w.until("the copy", func() error {
			copied, err := get(w, &corev1.Secret{ObjectMeta: w.named("a-cloudinit")})
			if err == nil && string(copied.Data["userdata"]) != data {
				err = fmt.Errorf("it has %q", copied.Data["userdata"])
			}
			return err
		})
		w.says(m, v1alpha1.PhaseCreating, v1alpha1.ReasonCreating)
		if reads := about(w.requests(), "GET /api/v1/namespaces/"+w.namespace+"/secrets/boot"); len(reads) != 1 {
			t.Errorf("reads of the Secret: %v", reads)
		}
		w.quiet()
	}
}

// TestMachinesOfOthersAreIgnored.
func TestMachinesOfOthersAreIgnored(t *testing.T) {
	w := newWorld(t)
	m := w.machine("a", func(m *v1alpha1.Machine) { m.Spec.Provider = "proxmox" })
	w.says(w.machine("b"), v1alpha1.PhaseCreating, v1alpha1.KubeVirtAPIError)
	if now, err := get(w, m.DeepCopy()); err != nil || now.ResourceVersion != m.ResourceVersion {
		t.Errorf("it was touched: %v %v", now.ObjectMeta, err)
	}
}

// TestAnOutdatedDefinitionIsRefused: with vitistack's own definition the API server drops what makes a Machine large.
func TestAnOutdatedDefinitionIsRefused(t *testing.T) {
	w := newWorld(t)
	name := client.ObjectKey{Name: "machines.vitistack.io"}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	w.do(direct.Get(t.Context(), name, definition))
	current := definition.Spec.DeepCopy()
	update := func(spec apiextensionsv1.CustomResourceDefinitionSpec) error {
		if err := direct.Get(t.Context(), name, definition); err != nil {
			return err
		}
		definition.Spec = spec
		return direct.Update(t.Context(), definition)
	}
	former := current.DeepCopy()
	spec := former.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	delete(spec.Properties, "template")
	spec.XValidations = nil
	former.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	w.until("the definition is replaced", func() error { return update(*former) })
	w.until("the operator is not ready", func() error {
		if ready, why := w.service.Ready(); ready || !strings.Contains(why, "kubectl apply --server-side") || !strings.Contains(why, "spec.template") {
			return errors.New(why)
		}
		return nil
	})
	w.until("the API server drops what the definition lacks", func() error { // it sees the change later than clients do
		dropped := &v1alpha1.Machine{ObjectMeta: w.named("b"), Spec: v1alpha1.MachineSpec{Template: "small"}}
		if err := direct.Create(t.Context(), dropped, client.DryRunAll); err != nil || dropped.Spec.Template == "" {
			return err
		}
		return fmt.Errorf("it keeps the template %s", dropped.Spec.Template)
	})
	m := w.machine("a")
	w.quiet()
	w.until("the definition is back", func() error { return update(*current) })
	w.says(m, v1alpha1.PhaseFailed, v1alpha1.KubeVirtAPIError)
	if why := m.Status.Conditions; !strings.Contains(fmt.Sprint(why), v1alpha1.InvalidSpec) {
		t.Errorf("a Machine whose template was dropped has no InvalidSpec: %v", why)
	}
}
