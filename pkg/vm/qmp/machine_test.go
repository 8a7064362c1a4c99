package qmp_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// short is a patience for guests that do nothing.
const short = 50 * time.Millisecond

// machine is a scripted machine: it keeps as much state as live changes read and misbehaves as ordered.
type machine struct {
	mu sync.Mutex

	// patience is the client's; 0 is more than enough for guests that do what they are asked to.
	patience time.Duration

	kvm bool
	// qemu is the major release; 0 is 7.
	qemu    int
	objects []string // below /objects
	slots   []qmp.CPUSlot
	// unplug is what the guest does when a CPU is to be removed; it may call release.
	unplug func(m *machine, p *peer, id string)
	// ignoreAdd makes device_add succeed without effect.
	ignoreAdd bool

	ram, actual int64
	// inflate is how the guest changes its size at each query.
	inflate func(actual, target int64) int64
	target  int64

	drive qmp.Drive
	// eject is what the guest does when it is asked to open a locked tray.
	eject func(m *machine, p *peer)
	// loseMedium makes a change of the medium succeed without effect.
	loseMedium bool

	sent []string // commands that change something
}

// cpuSlots returns n slots in QEMU's order, which is last first; the first ones are in use by the ids, where "" is a
// CPU that is part of the machine.
func cpuSlots(n int, ids ...string) []qmp.CPUSlot {
	var slots []qmp.CPUSlot
	for core := range n {
		slot := qmp.CPUSlot{Driver: "max-x86_64-cpu", Count: 1, Place: map[string]int{"socket-id": 0, "core-id": core, "thread-id": 0}}
		if core < len(ids) {
			slot.Path = "/machine/peripheral/" + ids[core]
		}
		if core < len(ids) && ids[core] == "" {
			slot.Path = fmt.Sprintf("/machine/unattached/device[%d]", core)
		}
		slots = append(slots, slot)
	}
	slices.Reverse(slots)
	return slots
}

// run connects a client to the machine.
func (m *machine) run(t *testing.T, options ...qmp.Option) *qmp.Client {
	t.Helper()
	patience := qmp.Patience{Unplug: m.patience, Balloon: m.patience, Tray: m.patience}
	return connect(t, each(m.answer), append(options, qmp.WithPatience(patience))...)
}

// answer carries out a command.
func (m *machine) answer(p *peer, r request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	result := any(struct{}{})
	refusal := ""
	switch r.Execute {
	case "query-kvm":
		result = map[string]bool{"enabled": m.kvm, "present": true}
	case "query-version":
		result = map[string]any{"qemu": map[string]int{"major": cmp.Or(m.qemu, 7), "minor": 2}}
	case "qom-list":
		result = m.children()
	case "query-hotpluggable-cpus":
		result = m.slots
	case "query-memory-size-summary":
		result = map[string]int64{"base-memory": m.ram, "plugged-memory": 0}
	case "query-balloon":
		m.actual = m.inflate(m.actual, m.target)
		result = map[string]int64{"actual": m.actual}
	case "query-block":
		result = m.drives()
	default:
		refusal = m.change(p, r)
	}
	if refusal != "" {
		p.refuse(r, refusal)
		return
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	p.reply(r, string(encoded))
}

func (m *machine) children() any {
	list := []map[string]string{{"name": "type", "type": "string"}}
	for _, name := range m.objects {
		list = append(list, map[string]string{"name": name, "type": "child<rng-builtin>"})
	}
	return list
}

func (m *machine) drives() any {
	cd := map[string]any{"qdev": "cd0", "tray_open": m.drive.TrayOpen, "locked": m.drive.Locked}
	if m.drive.File != "" {
		cd["inserted"] = map[string]string{"file": m.drive.File}
	}
	return []any{map[string]any{"device": "disk", "locked": false}, cd}
}

// change carries out commands that change something, and returns why if it refuses.
func (m *machine) change(p *peer, r request) (refusal string) {
	var device struct {
		ID       string
		Driver   string
		Core     int   `json:"core-id"`
		Value    int64 `json:"value"`
		Filename string
	}
	if err := json.Unmarshal(r.Arguments, &device); err != nil {
		return err.Error()
	}
	m.sent = append(m.sent, fmt.Sprintf("%s %s", r.Execute, device.ID))
	switch r.Execute {
	case "device_add":
		for i, slot := range m.slots {
			if slot.Place["core-id"] == device.Core && slot.Driver == device.Driver && !m.ignoreAdd {
				m.slots[i].Path = "/machine/peripheral/" + device.ID
			}
		}
	case "device_del":
		if m.unplug == nil {
			return "acpi: device unplug request for not supported device type: max-x86_64-cpu"
		}
		m.unplug(m, p, device.ID)
	case "object-add":
		m.objects = append(m.objects, device.ID)
	case "object-del":
		m.objects = slices.DeleteFunc(m.objects, func(name string) bool { return name == device.ID })
	case "balloon":
		m.target = device.Value
	default:
		return m.move(p, r.Execute, device.Filename)
	}
	return ""
}

// move carries out commands for the drive.
func (m *machine) move(p *peer, command, filename string) (refusal string) {
	switch command {
	case "blockdev-open-tray":
		if m.drive.Locked && !m.drive.TrayOpen {
			m.eject(m, p)
			return "Device 'cd0' is locked and force was not specified, wait for tray to open and try again"
		}
		m.drive.TrayOpen = true
	case "blockdev-close-tray":
		m.drive.TrayOpen = false
	case "blockdev-remove-medium":
		m.drive.File = ""
	case "blockdev-change-medium":
		if filename == "missing" {
			return "Could not open 'missing': No such file or directory"
		}
		m.drive.TrayOpen = false
		if !m.loseMedium {
			m.drive.File = filename
		}
	}
	return ""
}

// later does something a moment after the reply.
func (m *machine) later(do func()) {
	time.AfterFunc(10*time.Millisecond, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		do()
	})
}

// release removes a CPU and reports it as QEMU 7.2 does: only by the deletion of its local APIC.
func (m *machine) release(p *peer, id string) {
	for i := range m.slots {
		if m.slots[i].ID() == id {
			m.slots[i].Path = ""
		}
	}
	p.event("DEVICE_DELETED", fmt.Sprintf(`{"path": "/machine/peripheral/%s/lapic"}`, id))
	p.event("ACPI_DEVICE_OST", `{"info": {"source": 3, "status": 0, "slot": "1", "slot-type": "CPU"}}`)
}

func (m *machine) report(p *peer, id string, source, status int) {
	p.event("ACPI_DEVICE_OST", fmt.Sprintf(
		`{"info": {"device": %q, "source": %d, "status": %d, "slot": "1", "slot-type": "CPU"}}`, id, source, status))
}
