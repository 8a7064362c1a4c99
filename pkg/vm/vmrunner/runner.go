// Package vmrunner runs a virtual machine that is declared as one: it prepares the disks, firmware, CDs, networks and
// the data for cloud-init that package vmconfig describes, and has QEMU kept by package keeper. It knows nothing of the
// guest. cmd/runner fills its settings from a pod's environment.
package vmrunner

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Runner is the keeper of a virtual machine. It is used once.
type Runner struct {
	*keeper.Keeper
	settings Settings
	log      *slog.Logger
	tuner    *tuner
	display  *display
}

// New returns a Runner. See keeper.New for its arguments. It reads from the configuration how long the guest may take
// to shut down; what is wrong with the configuration is reported when the machine is prepared.
func New(settings Settings, log *slog.Logger, output, messages io.Writer) *Runner {
	settings.Timeouts.Boot = 0
	if live, err := settings.readLive(); err == nil && live.PowerdownTimeout > 0 {
		settings.Timeouts.Powerdown = time.Duration(live.PowerdownTimeout) * time.Second
	}
	r := &Runner{settings: settings, log: log}
	r.display = newDisplay(settings, log)
	r.tuner = newTuner(settings, log, func(timeout time.Duration) { r.SetPowerdown(timeout) })
	r.Keeper = keeper.New(settings.Settings, keeper.Guest{
		Prepare: r.prepare, Status: func(ctx context.Context) any { return r.Status(ctx) }, Running: r.accompany, Ended: r.ended,
		Routes: func(mux *http.ServeMux) { mux.HandleFunc("GET "+vmconfig.LinkPath, r.serveLink) },
	}, log, output, messages)
	return r
}

// accompany runs beside QEMU until the context ends.
func (r *Runner) accompany(ctx context.Context, monitor func() *qmp.Client) {
	var both sync.WaitGroup
	both.Go(func() { r.tuner.run(ctx, monitor) })
	both.Go(func() { r.display.run(ctx, monitor) })
	both.Wait()
}
