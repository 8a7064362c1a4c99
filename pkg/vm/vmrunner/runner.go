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
	companions
	settings Settings
	log      *slog.Logger
}

// companions run beside QEMU: each looks after a part of the machine that can change.
type companions struct {
	tuner    *tuner
	display  *display
	growth   *growth
	agent    *agent
	identity *identity
	news     *news
}

// companion is one of them.
type companion interface {
	// run runs beside QEMU until the context ends.
	run(ctx context.Context, monitor func() *qmp.Client)
	// report adds what is known to a report.
	report(r *vmconfig.Report)
}

func newCompanions(s Settings, log *slog.Logger, setPowerdown func(time.Duration)) companions {
	n := &news{}
	t := newTuner(s, log, n, setPowerdown)
	return companions{tuner: t, display: newDisplay(s, log, n), growth: newGrowth(s, log, n), agent: newAgent(s.Agent(), t, log, n), identity: &identity{version: s.Version, log: log, news: n}, news: n}
}

func (c companions) all() []companion {
	return []companion{c.tuner, c.display, c.growth, c.agent, c.identity}
}

// run runs all of them until the context ends.
func (c companions) run(ctx context.Context, monitor func() *qmp.Client) {
	var running sync.WaitGroup
	for _, one := range c.all() {
		running.Go(func() { one.run(ctx, monitor) })
	}
	running.Wait()
}

// report adds what all of them know to a report, and returns a channel that is closed when one knows something else.
func (c companions) report(r *vmconfig.Report) <-chan struct{} {
	changed := c.news.wait()
	for _, one := range c.all() {
		one.report(r)
	}
	return changed
}

// New returns a Runner. See keeper.New for its arguments. It reads from the configuration how long the guest may take
// to shut down; what is wrong with the configuration is reported when the machine is prepared.
func New(settings Settings, log *slog.Logger, output, messages io.Writer) *Runner {
	settings.Timeouts.Boot = 0
	if live, err := settings.readLive(); err == nil && live.PowerdownTimeout > 0 {
		settings.Timeouts.Powerdown = time.Duration(live.PowerdownTimeout) * time.Second
	}
	r := &Runner{settings: settings, log: log}
	r.companions = newCompanions(settings, log, func(timeout time.Duration) { r.SetPowerdown(timeout) })
	r.Keeper = keeper.New(settings.Settings, keeper.Guest{
		Prepare: r.prepare, Status: func(ctx context.Context) any { return r.Status(ctx) }, Running: r.run, ShutDown: r.agent.shutDown, Ended: r.ended,
		Routes: func(mux *http.ServeMux) { mux.HandleFunc("GET "+vmconfig.LinkPath, r.serveLink) },
	}, log, output, messages)
	return r
}
