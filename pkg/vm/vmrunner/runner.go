// Package vmrunner runs a virtual machine that is declared as one: it prepares the disks, firmware, CDs, networks and
// the data for cloud-init that package vmconfig describes, and has QEMU kept by package keeper. It knows nothing of the
// guest. cmd/runner fills its settings from a pod's environment.
package vmrunner

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Runner is the keeper of a virtual machine. It is used once.
type Runner struct {
	*keeper.Keeper
	settings Settings
	log      *slog.Logger
	tuner    *tuner
}

// New returns a Runner. See keeper.New for its arguments. It reads from the configuration how long the guest may take
// to shut down; what is wrong with the configuration is reported when the machine is prepared.
func New(settings Settings, log *slog.Logger, output, messages io.Writer) *Runner {
	settings.Timeouts.Boot = 0
	if live, err := settings.readLive(); err == nil && live.PowerdownTimeout > 0 {
		settings.Timeouts.Powerdown = time.Duration(live.PowerdownTimeout) * time.Second
	}
	r := &Runner{settings: settings, log: log}
	r.tuner = newTuner(settings, log, func(timeout time.Duration) { r.SetPowerdown(timeout) })
	r.Keeper = keeper.New(settings.Settings, keeper.Guest{
		Prepare: r.prepare, Status: func(ctx context.Context) any { return r.Status(ctx) }, Running: r.tuner.run, Ended: r.ended,
		Routes: func(mux *http.ServeMux) { mux.HandleFunc("GET "+vmconfig.LinkPath, r.serveLink) },
	}, log, output, messages)
	return r
}
