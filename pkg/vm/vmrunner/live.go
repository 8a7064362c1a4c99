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

// fit returns what of the wanted this machine can have, and why a part of it is another. What is wanted may describe a
// later machine than this one, because it changes at once and the machine with its pod.
func fit(live vmconfig.Live, m vmconfig.Machine) (vmconfig.Live, map[string]string) {
	most, problems := all(m), map[string]string{}
	if live.CurrentCPUs > most.CurrentCPUs {
		problems[vmconfig.PartCPUs] = fmt.Sprintf("%d CPUs are wanted and the machine has room for %d until it is restarted", live.CurrentCPUs, most.CurrentCPUs)
		live.CurrentCPUs = most.CurrentCPUs
	}
	switch {
	case live.CurrentRAM <= 0:
		live.CurrentRAM = most.CurrentRAM
	case live.CurrentRAM > most.CurrentRAM:
		problems[vmconfig.PartRAM] = fmt.Sprintf("%d MiB are wanted and the machine has %d MiB until it is restarted", live.CurrentRAM>>20, most.CurrentRAM>>20)
		live.CurrentRAM = most.CurrentRAM
	}
	switch {
	case live.Media == nil:
		live.Media = most.Media
	case len(live.Media) != len(most.Media):
		// Which medium is for which drive is not known.
		problems[vmconfig.PartMedia] = fmt.Sprintf("there are to be %d CD drives and the machine has %d until it is restarted", len(live.Media), len(most.Media))
		live.Media = most.Media
	}
	return live, problems
}
