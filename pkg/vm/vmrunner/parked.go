package vmrunner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// markName is the name of the file which says that the guest shut itself down. It is in the directory for state.
const markName = "guest-shut-down"

// modeOfState keeps QEMU's user out of the directory for state.
const modeOfState fs.FileMode = 0o700

func (s Settings) mark() string { return filepath.Join(s.State, markName) }

// ended marks that the guest shut itself down, before the runner ends: kubelet starts the container again, and the
// machine with it unless the next runner knows. A mark that is missing means a reboot.
func (r *Runner) ended(end keeper.End) {
	if end.Reason != keeper.ReasonGuestShutDown {
		return
	}
	err := os.MkdirAll(r.settings.State, 0o700)
	if err == nil {
		err = store(r.settings.mark(), []byte("The guest shut itself down.\n"))
	}
	if err != nil {
		r.log.Error("Cannot record that the guest shut itself down; if the container restarts, so does the machine", "error", err)
	}
}

// beginning is what a runner does first.
type beginning string

const (
	// boots starts the machine.
	boots beginning = "boots"
	// waits parks the machine for some time, in which the operator can replace the pod.
	waits beginning = "waits"
	// stays parks the machine until the pod ends.
	stays beginning = "stays"
)

// begin decides what a runner does first. marked says that the guest of the runner before shut itself down, and stops
// that this stops the machine. parked is for how long the machine has been parked, and most for how long it is while it
// is to be started again.
func begin(marked, stops bool, parked, most time.Duration) beginning {
	switch {
	case !marked:
		return boots
	case stops:
		return stays
	case parked < most:
		return waits
	}
	return boots
}

// why says what a parked machine waits for.
var why = map[beginning]string{
	waits: "the guest shut itself down; the machine is started again unless its pod is replaced",
	stays: "the guest shut itself down; the machine stays stopped (guestShutdownStops)",
}

// park parks the machine as long as it is not to be started. It follows the configuration.
func (p *preparation) park(ctx context.Context) error {
	// The kubelet creates the directory world-writable.
	if err := os.Chmod(p.settings.State, modeOfState); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return keeper.Because(keeper.ReasonInternal, err)
	}
	marked := p.marked()
	stops := p.live.GuestShutdownStops
	err := p.Park(ctx, func(parked time.Duration) (bool, string) {
		if live, ordered := p.tuner.latest(); ordered {
			stops = live.GuestShutdownStops
		} else if live, err := p.settings.readLive(); err == nil {
			stops = live.GuestShutdownStops
		}
		next := begin(marked, stops, parked, p.settings.ParkedFor)
		return next == boots, why[next]
	})
	if err != nil || !marked {
		return err
	}
	if err := os.Remove(p.settings.mark()); err != nil {
		p.log.Error("Cannot remove the record that the guest shut itself down; if the container restarts, its machine is parked", "error", err)
	}
	return nil
}

func (p *preparation) marked() bool {
	_, err := os.Lstat(p.settings.mark())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.Error("Cannot read whether the guest shut itself down; the machine is started", "error", err)
	}
	return err == nil
}
