package vmrunner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// all returns the part that can change of a machine that says nothing of it: the guest has all that the machine has.
func all(m vmconfig.Machine) vmconfig.Live {
	return vmconfig.Live{CurrentCPUs: m.MaximumCPUs, CurrentRAM: m.MaximumRAM, Media: make([]string, m.CDs())}
}

// readLive returns the part of the machine that can change, as the configuration file has it.
func (s Settings) readLive() (vmconfig.Live, error) {
	text, err := os.ReadFile(s.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return all(s.Machine), nil
	}
	if err != nil {
		return vmconfig.Live{}, err
	}
	live, err := vmconfig.ParseLive(text)
	if err != nil {
		return live, fmt.Errorf("%s: %w", s.Config, err)
	}
	return live, nil
}

// fit returns what of the configuration this machine can have. The configuration may describe a later machine than this
// one, because it changes at once and the machine with its pod. The sentences say what was changed.
func fit(live vmconfig.Live, m vmconfig.Machine) (vmconfig.Live, []string) {
	most, changes := all(m), []string(nil)
	if live.CurrentCPUs > most.CurrentCPUs {
		changes = append(changes, fmt.Sprintf("currentCpus is %d and the machine has room for %d", live.CurrentCPUs, most.CurrentCPUs))
		live.CurrentCPUs = most.CurrentCPUs
	}
	switch {
	case live.CurrentRAM <= 0:
		live.CurrentRAM = most.CurrentRAM
	case live.CurrentRAM > most.CurrentRAM:
		changes = append(changes, fmt.Sprintf("currentRam is %d MiB and the machine has %d MiB", live.CurrentRAM>>20, most.CurrentRAM>>20))
		live.CurrentRAM = most.CurrentRAM
	}
	if len(live.Media) != len(most.Media) {
		// Which medium is for which drive is not known.
		changes = append(changes, fmt.Sprintf("the configuration has %d CD drives and the machine %d, which stay empty", len(live.Media), len(most.Media)))
		live.Media = most.Media
	}
	return live, changes
}
