package qemu

import (
	"fmt"
	"regexp"
	"strings"
)

// CPU is the guest's processor.
type CPU struct {
	// Model is QEMU's name of it, optionally with features, such as "EPYC,pmu=off". Empty or "host" means all that
	// this host has, which is "host" under KVM and "max" in software.
	Model string
	// Nested exposes the processor's virtualization (vmx, svm) to the guest, if the processor has it. A guest that runs
	// virtual machines of its own can reach a large part of the host's KVM that others cannot.
	Nested bool
	// Count is how many CPUs the guest starts with, at least 1.
	Count int
	// Max is how many it can have. 0 means Count. If it is more, every CPU except the first is a device cpu-<n>, with n
	// counting from 1, which QMP's device_del removes, and device_add can add more in ascending order.
	Max int
	// Removable makes every CPU except the first a device also if Max is not more than Count.
	Removable bool
	// Topology is how the Max CPUs are arranged.
	Topology Topology
}

// plugged returns whether every CPU except the first is a device. CPUs that -smp creates have no id and cannot be removed.
func (c CPU) plugged() bool { return c.Max > c.Count || c.Removable && c.Max > 1 }

// Topology arranges CPUs: their number is the product of the four. Sockets, Dies and Threads default to 1; Cores
// defaults to as many as that number requires.
type Topology struct {
	Sockets, Dies, Cores, Threads int
}

func (t Topology) product() int { return t.Sockets * t.Dies * t.Cores * t.Threads }

func (t Topology) complete(cpus int) Topology {
	for _, part := range []*int{&t.Sockets, &t.Dies, &t.Threads} {
		if *part == 0 {
			*part = 1
		}
	}
	if t.Cores == 0 {
		t.Cores = max(1, cpus/(t.Sockets*t.Dies*t.Threads))
	}
	return t
}

// noVirtualization hides what a hypervisor needs, for Intel's and for AMD's processors. QEMU accepts both on either.
const noVirtualization = ",vmx=off,svm=off"

func (c CPU) complete(a Accelerator) CPU {
	name, features, _ := strings.Cut(c.Model, ",")
	if name == "" || name == "host" {
		name = "host"
		if a == TCG {
			// QEMU rejects host without KVM.
			name = "max"
		}
	}
	c.Model = name
	if features != "" {
		c.Model += "," + plainFeatures(features)
	}
	if c.Max == 0 {
		c.Max = c.Count
	}
	c.Topology = c.Topology.complete(c.Max)
	return c
}

// plainFeatures writes "+f" as "f=on" and "-f" as "f=off". QEMU applies the former notation last, whatever the order, and
// it would undo what the operator's settings forbid.
func plainFeatures(features string) string {
	list := strings.Split(features, ",")
	for i, feature := range list {
		if name, on := strings.CutPrefix(feature, "+"); on {
			list[i] = name + "=on"
		} else if name, off := strings.CutPrefix(feature, "-"); off {
			list[i] = name + "=off"
		}
	}
	return strings.Join(list, ",")
}

// modelPattern matches what QEMU's parser of -cpu can parse: it has no escape for a comma.
var modelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(,[+-]?[A-Za-z0-9][A-Za-z0-9._-]*(=[A-Za-z0-9._-]*)?)*$`)

func (m Machine) checkCPU(found *FieldErrors) {
	c := m.CPU
	found.unless(modelPattern.MatchString(c.Model), "CPU.Model", "%q is not a model with features, such as EPYC,pmu=off", c.Model)
	found.unless(c.Count >= 1, "CPU.Count", "%d: a machine has 1 CPU or more", c.Count)
	found.unless(c.Max >= c.Count, "CPU.Max", "%d is less than the %d CPUs to start with", c.Max, c.Count)
	found.unless(!c.plugged() || !m.microVM(), "CPU.Max", "a microvm cannot plug CPUs")
	t := c.Topology
	found.unless(min(t.Sockets, t.Dies, t.Cores, t.Threads) > 0, "CPU.Topology", "a part of it is negative")
	found.unless(t.product() == c.Max, "CPU.Topology", "%d sockets × %d dies × %d cores × %d threads are not %d CPUs",
		t.Sockets, t.Dies, t.Cores, t.Threads, c.Max)
	found.unless(t.Dies == 1 || !m.microVM(), "CPU.Topology", "a microvm has no dies")
}

func (m Machine) addCPUs(a *arguments) {
	model := m.CPU.Model
	if !m.CPU.Nested {
		model += noVirtualization
	}
	a.add("-cpu", model)
	t := m.CPU.Topology
	smp := []string{fmt.Sprint(m.CPU.Count)}
	if m.CPU.plugged() {
		smp = []string{"1", fmt.Sprintf("maxcpus=%d", m.CPU.Max)}
	}
	smp = append(smp, fmt.Sprintf("sockets=%d", t.Sockets))
	if t.Dies > 1 {
		smp = append(smp, fmt.Sprintf("dies=%d", t.Dies))
	}
	a.add("-smp", append(smp, fmt.Sprintf("cores=%d", t.Cores), fmt.Sprintf("threads=%d", t.Threads))...)
	if m.CPU.plugged() {
		m.addPluggedCPUs(a)
	}
}

// addPluggedCPUs fills the lowest slots: under QEMU 7.2 and TCG a Linux hangs that boots with a gap between its CPUs.
func (m Machine) addPluggedCPUs(a *arguments) {
	name, _, _ := strings.Cut(m.CPU.Model, ",")
	t := m.CPU.Topology
	for n := 1; n < m.CPU.Count; n++ {
		slot := []string{name + "-x86_64-cpu", fmt.Sprintf("id=cpu-%d", n), fmt.Sprintf("socket-id=%d", n/(t.Dies*t.Cores*t.Threads))}
		if t.Dies > 1 {
			slot = append(slot, fmt.Sprintf("die-id=%d", n/(t.Cores*t.Threads)%t.Dies))
		}
		a.add("-device", append(slot, fmt.Sprintf("core-id=%d", n/t.Threads%t.Cores), fmt.Sprintf("thread-id=%d", n%t.Threads))...)
	}
}
