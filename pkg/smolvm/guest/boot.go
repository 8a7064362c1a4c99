package guest

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

const (
	// deviceWait is how long a device may take to be there after its driver was loaded.
	deviceWait = 20 * time.Second
	devicePoll = 5 * time.Millisecond
	// openFiles are the limits of processes, of which they can raise the first one to the second.
	openFiles, mostOpenFiles = 65536, 1048576
	// agentMemory is what the agent should not exceed, in bytes.
	agentMemory = 48 << 20
)

// Run is process 1 of a microVM. It does not return: an error or a panic of the agent becomes a sentence on the console, and
// the machine is powered off.
func Run() {
	debug.SetMemoryLimit(agentMemory)
	err := mountKernel()
	to := openConsole()
	if err == nil {
		guard(to, func() { err = serve(to) })
	}
	give := fmt.Errorf("the machine cannot continue: %w", err)
	to.say("%s", give)
	to.powerOff()
}

// guard calls f, and makes a panic the end of the machine.
func guard(to *console, f func()) {
	defer func() {
		if why := recover(); why != nil {
			to.say("the agent has a defect and cannot continue: %v: %s", why, debug.Stack())
			to.powerOff()
		}
	}()
	f()
}

// serve makes the machine and serves its host. The host is answered before the workload starts.
func serve(to *console) error {
	m, err := prepare(to)
	if err != nil {
		return err
	}
	port, err := openPort(agentwire.Port)
	if err != nil {
		return err
	}
	m.spawn(m.startWorkload)
	return agentwire.Serve(port, m, m.spawn)
}

func prepare(to *console) (*Machine, error) {
	if err := loadModules("/modules", "micro.order"); err != nil {
		return nil, err
	}
	config, err := readConfig()
	if err != nil {
		return nil, err
	}
	m := &Machine{config: config, console: to, reaper: newReaper(), workload: agentwire.WorkloadNone}
	m.spawn = func(f func()) { go guard(to, f) }
	m.spawn(m.reaper.run)
	disks, err := mountDisks()
	if err != nil {
		return nil, err
	}
	m.grown, m.unmount = disks.grown, disks.unmount
	if m.Root, err = disks.enterRoot(config); err != nil {
		return nil, err
	}
	disks.root = m.Root
	if err := unix.Sethostname([]byte(config.Name)); err != nil {
		return nil, fmt.Errorf("setting the host name: %w", err)
	}
	if err := configureNetwork(config.Network); err != nil {
		return nil, err
	}
	// Without this, the kernel's low limits would hold for all processes.
	if err := setLimit(); err != nil {
		return nil, err
	}
	return m, nil
}

// readConfig reads what the host says in the firmware configuration.
func readConfig() (agentwire.Config, error) {
	file, err := os.Open("/sys/firmware/qemu_fw_cfg/by_name/" + agentwire.ConfigName + "/raw")
	if err != nil {
		return agentwire.Config{}, fmt.Errorf("reading the machine's configuration: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(file, agentwire.MaxConfig+1))
	if err != nil {
		return agentwire.Config{}, fmt.Errorf("reading the machine's configuration: %w", err)
	}
	return agentwire.ParseConfig(text)
}

// await calls there until it is true, for as long as a device may take.
func await(there func() bool) bool {
	for end := time.Now().Add(deviceWait); !there(); time.Sleep(devicePoll) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
