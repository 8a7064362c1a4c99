package vmrunner

import (
	"context"
	"log/slog"
	"sync"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// identity is which runner and which machine of QEMU the guest runs on.
type identity struct {
	version string
	log     *slog.Logger

	mu          sync.Mutex
	machineType string
	*news
}

// begin asks QEMU, before the guest runs. A machine whose type is not known runs, too.
func (i *identity) begin(ctx context.Context, monitor *qmp.Client) {
	name, err := monitor.MachineType(ctx)
	if err != nil {
		i.log.Warn("The type of the machine is not known", "error", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.machineType = name
	i.tell()
}

// run does nothing: the identity does not change.
func (*identity) run(context.Context, func() *qmp.Client) {}

// report adds what is known to a report.
func (i *identity) report(r *vmconfig.Report) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.Runner, r.MachineType = i.version, i.machineType
}
