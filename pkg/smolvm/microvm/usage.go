package microvm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// usage remembers how much processor time QEMUs had used, to tell how much they use.
type usage struct {
	mu   sync.Mutex
	at   time.Time
	used map[int]time.Duration
	rate float64
}

// sampleEvery is how far two samples are apart at least.
const sampleEvery = time.Second

// cpus returns how many processors the processes used on average since the last sample.
func (u *usage) cpus(now time.Time, used map[int]time.Duration) float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	passed := now.Sub(u.at)
	if passed < sampleEvery {
		return u.rate
	}
	var sum time.Duration
	for pid, total := range used {
		if before, known := u.used[pid]; known && total >= before {
			sum += total - before
		}
	}
	u.rate = 0
	if !u.at.IsZero() {
		u.rate = float64(sum) / float64(passed)
	}
	u.at, u.used = now, used
	return u.rate
}

// ticksPerSecond is the unit of times in /proc (proc(5)); Linux fixes it for user space.
const ticksPerSecond = 100

// processOf reads how much processor time and memory, in bytes, a process has used (proc_pid_stat(5)).
func processOf(pid int) (used time.Duration, memory int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name may hold spaces and parentheses; the fields from the third on follow the last one.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	number := func(n int) int64 {
		value, _ := strconv.ParseInt(string(fields[n-3]), 10, 64)
		return value
	}
	ticks := number(14) + number(15)
	return time.Duration(ticks) * time.Second / ticksPerSecond, number(24) * int64(os.Getpagesize()), nil
}

// Capacity returns what the machines that run have and use.
func (m *Manager) Capacity(ctx context.Context) (api.Capacity, error) {
	machines, err := m.List(ctx)
	if err != nil {
		return api.Capacity{}, err
	}
	c := api.Capacity{BootID: m.boot}
	used := map[int]time.Duration{}
	var memory, disk int64
	for _, one := range machines {
		disk += m.occupied(one.Name)
		if one.PID == 0 {
			continue
		}
		c.AllocatedCPUs += one.CPUs
		c.AllocatedMemoryMB += one.MemoryMB
		if time, resident, err := processOf(one.PID); err == nil {
			used[one.PID] = time
			memory += resident
		}
	}
	c.UsedCPUs, c.UsedMemoryMB, c.UsedDiskGB = m.usage.cpus(m.now(), used), memory>>20, (disk+gib-1)/gib
	return c, nil
}

// occupied returns how many bytes the files of a machine take. Its disks are sparse.
func (m *Manager) occupied(name string) int64 {
	entries, err := os.ReadDir(m.store.directory(name))
	if err != nil {
		return 0
	}
	var sum int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += stat.Blocks * 512 // stat(2)
			}
		}
	}
	return sum
}

// Health says how the server is. It asks no machine, because one that hangs must not make the server look so.
func (m *Manager) Health(context.Context) (api.Health, error) {
	h := api.Health{Status: "ok", Version: m.settings.Version, UptimeSeconds: int64(time.Since(m.started).Seconds()), Backend: "qemu"}
	for _, one := range m.all() {
		h.Machines.Total++
		if one.last() == api.StateRunning {
			h.Machines.Running++
		}
	}
	if m.settings.SurvivesRestart {
		h.Features = append(h.Features, api.FeatureSurvivesRestart)
	}
	h.Accelerator, h.AcceleratorReason = "", "it is being found out whether KVM works here"
	if choice := m.choice.Load(); choice != nil {
		h.Accelerator, h.AcceleratorReason = string(choice.Accelerator), choice.Reason
	}
	return h, nil
}

// prove finds out whether KVM runs guests here. That may take a canary's time; what was proved is kept until the host
// boots again, and machines' processes find it.
func (m *Manager) prove(ctx context.Context) {
	h := m.settings.Host
	prover := qemu.Prover{Binary: h.QEMU, Kernel: h.Kernel, Cache: h.Proved}
	choice, err := prover.Choose(ctx, h.Acceleration)
	if err != nil {
		choice = qemu.Choice{Reason: err.Error()}
	}
	if ctx.Err() == nil {
		m.choice.Store(&choice)
		m.log.Info("Accelerator", "accelerator", choice.Accelerator, "reason", choice.Reason)
	}
}
