// Package noderunner runs the machine of a node pod: it prepares boot data, image, etcd's data, disks, shares and
// network, and has QEMU kept by package keeper. It asks the guest's kubelet and API server how they are. cmd/runner fills
// its settings from a node pod's environment.
package noderunner

import (
	"context"
	"io"
	"log/slog"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// Runner is the keeper of a node pod's machine. It is used once.
type Runner struct {
	*keeper.Keeper
	settings Settings
	log      *slog.Logger
	// health asks the guest, once it runs.
	health health
}

// New returns a Runner. See keeper.New for its arguments.
func New(settings Settings, log *slog.Logger, output, messages io.Writer) *Runner {
	r := &Runner{settings: settings, log: log}
	r.Keeper = keeper.New(settings.Settings, keeper.Guest{
		Prepare: r.prepare, Status: func(ctx context.Context) any { return r.Status(ctx) },
	}, log, output, messages)
	return r
}

// Status is what `runner status` shows.
type Status struct {
	keeper.Status
	// Kubelet is "ok" or why the guest's kubelet is not healthy.
	Kubelet string `json:"kubelet,omitempty"`
	// API is "ok" or why a master's API server is not ready.
	API string `json:"api,omitempty"`
}

// Status returns the machine's status, for which it asks QEMU, the guest's kubelet and, on a master, its API server.
func (r *Runner) Status(ctx context.Context) Status {
	var status Status
	status.Status = r.Keeper.Status(ctx,
		keeper.Probe{Subject: "kubelet", Ask: func(ctx context.Context) string {
			status.Kubelet = r.health.askKubelet(ctx, r.settings.Health)
			return status.Kubelet
		}},
		keeper.Probe{Subject: "API server", Ask: func(ctx context.Context) string {
			status.API = r.health.askAPI(ctx, r.settings.API)
			return status.API
		}})
	return status
}
