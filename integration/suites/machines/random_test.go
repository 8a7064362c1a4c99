package machines_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// randomMachines is how many Machines are made up, and seed is what they depend on.
const (
	randomMachines = 300
	seed           = 27
)

// parts are what specs are put together from, by field: right and wrong values.
var parts = map[string][]string{
	"template":  {"small", "medium", "large", "huge", `""`, "Small"},
	"resources": {"{cpu: {cores: 2}}", "{cpu: {sockets: 2, threads: 2}}", "{memory: {size: 1Gi}}", "{memory: {size: 0}}", "{memory: {size: lots}}", "{cpu: {cores: 0}}", "{cpu: {cores: 300}}", "{memory: {size: 100Ti}}", "{memory: {size: 1}}"},
	"disks": {
		"[{name: root, size: 30Gi}]", "[{name: data, size: 1Gi, storageClass: standard}]", "[{name: data, size: 1Gi, storageClass: none}]",
		"[{name: data}]", "[{name: a, size: 1Gi}, {name: a, size: 2Gi}]", "[{name: cloudinitdisk, size: 1Gi}]", "[{name: Data, size: 1Gi}]",
		"[{name: a, size: 1Gi, boot: true}, {name: b, size: 1Gi, boot: true}]", "[{name: data, size: 1Gi, accessMode: ReadOnlyMany}]",
		"[{name: data, size: 1Gi, type: sata}]", "[{name: late, size: 1Gi, storageClass: late}]", "[{name: data, size: 1Gi, volumeMode: Blok}]",
		"[{name: img, source: {containerDisk: {image: example.org/disk:1}}}]",
	},
	"networks": {
		"[{name: eth0, networkName: front}]", "[{name: eth0, networkName: pods}]", "[{name: eth0, networkName: nowhere}]",
		"[{name: eth0, networkName: front, model: e1000}, {name: eth1, networkName: pods}]", "[{name: a, networkName: pods}, {name: b, networkName: pods}]",
		`[{name: eth0, networkName: front, macAddress: "52:54:00:aa:00:01"}]`, `[{name: eth0, networkName: front, macAddress: "53:54:00:aa:00:01"}]`,
		"[{name: eth0, networkName: front, model: magic}]", "[{name: 'eth 0', networkName: front}]",
	},
	"bootOrder": {"[disk]", "[network, disk]", "[cdrom, disk]", "[disk, disk]", "[floppy]"},
	"cloudInit": {
		`{userData: "#cloud-config"}`, "{secretRef: {name: data}}", "{secretRef: {name: data, key: none}}", "{secretRef: {name: none}}",
		"{userDataBase64: '!!'}", "{userDataBase64: IyEvYmluL3No}", "{networkData: 'version: 2'}", "{type: configDrive, userData: x}", "{}",
	},
	"domain": {
		"{machine: {type: q35}}", "{machine: {type: pc-q35}}", "{machine: {type: pc-i440fx}}", "{machine: {type: '../x'}}", "{features: {acpi: false, apic: true, hyperv: true}}",
		"{firmware: {bootloader: {efi: true}}}", "{firmware: {bootloader: {efi: true, secureBoot: true}}}", "{firmware: {bootloader: {secureBoot: true}}}",
	},
	"provider":     {"kubevirt", "proxmox"},
	"machineClass": {"none"},
	"memory":       {"1073741824", "1", "-1"},
	"running":      {"true"}, // no field
}

// invent makes up a spec. A third of the Machines has one field, and others have up to six.
func invent(random *rand.Rand) string {
	fields := slices.Sorted(maps.Keys(parts))
	spec := []string{}
	if random.IntN(3) > 0 {
		spec = append(spec, "template: small")
		fields = slices.DeleteFunc(fields, func(f string) bool { return f == "template" })
	}
	random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	n := 1
	if random.IntN(3) > 0 {
		n = 1 + random.IntN(6)
	}
	for _, field := range fields[:n] {
		values := parts[field]
		spec = append(spec, field+": "+values[random.IntN(len(values))])
	}
	return "{" + strings.Join(spec, ", ") + "}"
}

// TestRandomMachinesRunOrSayWhatIsWrong: whatever a spec says, and whatever requests fail, in the end a Machine runs, or
// its status names what is wrong, and the operator rests.
func TestRandomMachinesRunOrSayWhatIsWrong(t *testing.T) {
	faults := &lab.Faults{Random: rand.New(rand.NewPCG(seed, 1)), Rate: 0.1}
	p := newCrashPlace(t)
	needKubeVirt(t)
	p.operator = serve(t, wrapped(faults.Transport))
	p.network("pods", "{}")
	random := rand.New(rand.NewPCG(seed, 2))
	specs := p.declareRandom(random)
	faults.Stop()
	p.longUntil(func() error { return p.allDecided(specs) })
	p.settles()
	t.Logf("%d faults", faults.Count())
	outcomes := p.summarize(specs)
	// KubeVirt may still report something about a guest on a busy machine, which is written. An operator that does not
	// rest writes in each of these times.
	var busy string
	for range 3 {
		if busy = p.busy(outcomes["Creating/"+v1alpha1.KubeVirtAPIError]); busy == "" {
			break
		}
		t.Log(busy)
	}
	if busy != "" {
		t.Error(busy)
	}
	p.endAll()
}

// busy returns what the operator asks for over three intervals; empty if nothing. What KubeVirt refuses is asked again every 30
// seconds, and events whose answer was lost are posted again for some time.
func (p *place) busy(refusals int) string {
	p.Helper()
	count := p.count()
	p.intervals(3)
	var asked, refused requests
	for _, r := range p.since(count) {
		if r.Method == http.MethodPost && r.Status == http.StatusUnprocessableEntity {
			refused = append(refused, r)
		} else {
			asked = append(asked, r)
		}
	}
	if len(asked) == 0 && len(refused) <= refusals {
		return ""
	}
	return fmt.Sprintf("%d requests while nothing happens: %v; and %d that are refused", len(asked), asked[:min(len(asked), 10)], len(refused))
}

// declareRandom creates the Machines and changes some of them. It returns the specs of those that the API server accepts.
func (p *place) declareRandom(random *rand.Rand) map[string]string {
	p.Helper()
	specs := map[string]string{}
	refused := 0
	for i := range randomMachines {
		spec := invent(random)
		name := fmt.Sprintf("r%d", i)
		m := &v1alpha1.Machine{}
		m.Namespace, m.Name = p.namespace, name
		// Not strict: a field that does not exist is pruned.
		err := yaml.Unmarshal([]byte("spec: "+spec), m)
		if err == nil {
			err = api.Create(context.Background(), m)
		}
		if err != nil {
			refused++
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				p.Logf("%s: %s", spec, err)
			}
			continue
		}
		specs[name] = spec
		if random.IntN(4) == 0 {
			p.mutate(m, specs, invent(random))
		}
	}
	p.Logf("seed %d: %d Machines, %d of which the API server refuses", seed, randomMachines, refused)
	return specs
}

// mutate gives a Machine another spec, if the API server accepts it.
func (p *place) mutate(m *v1alpha1.Machine, specs map[string]string, spec string) {
	other := &v1alpha1.Machine{}
	if yaml.Unmarshal([]byte("spec: "+spec), other) != nil {
		return
	}
	for range 5 {
		if api.Get(context.Background(), key(m), m) != nil {
			return
		}
		m.Spec = other.Spec
		err := api.Update(context.Background(), m)
		if err == nil {
			specs[m.Name] += " then " + spec
		}
		if !apierrors.IsConflict(err) {
			return
		}
	}
}

// decided returns what a Machine has come to, or an error while it may still come to something else.
func decided(m *v1alpha1.Machine) (string, error) {
	if m.Spec.Provider != "" && m.Spec.Provider != v1alpha1.Provider {
		return "ignored", nil
	}
	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || m.Status.ObservedGeneration != m.Generation {
		return "", fmt.Errorf("it is not reconciled: %s", describe(m))
	}
	if ready.Reason == v1alpha1.ReasonRunning || slices.Contains(v1alpha1.ErrorTypes(), ready.Reason) {
		return m.Status.Phase + "/" + ready.Reason, nil
	}
	return "", fmt.Errorf("it neither runs nor says what is wrong: %s", describe(m))
}

func (p *place) allDecided(specs map[string]string) error {
	list := &v1alpha1.MachineList{}
	if err := api.List(context.Background(), list, inNamespace(p)); err != nil {
		return err
	}
	open, last := 0, error(nil)
	for i := range list.Items {
		if _, err := decided(&list.Items[i]); err != nil {
			open++
			last = fmt.Errorf("%s: %w", specs[list.Items[i].Name], err)
		}
	}
	if open > 0 {
		return fmt.Errorf("%d are open; %w", open, last)
	}
	return nil
}

// summarize logs what the Machines have come to, and returns how many to what.
func (p *place) summarize(specs map[string]string) map[string]int {
	p.Helper()
	list := &v1alpha1.MachineList{}
	if err := api.List(context.Background(), list, inNamespace(p)); err != nil {
		p.Fatal(err)
	}
	counts := map[string]int{}
	for i := range list.Items {
		outcome, err := decided(&list.Items[i])
		if err != nil {
			p.Errorf("%s: %s", specs[list.Items[i].Name], err)
		}
		counts[outcome]++
	}
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		p.Logf("    %4d %s", counts[outcome], outcome)
	}
	return counts
}
