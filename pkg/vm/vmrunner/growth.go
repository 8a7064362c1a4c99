package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// growth tells the guest of disks that have become larger. A disk never becomes smaller.
type growth struct {
	settings Settings
	log      *slog.Logger

	mu sync.Mutex
	// sizes are what the guest sees, in bytes, by the name of the disk.
	sizes   map[string]int64
	problem string
	*news
}

func newGrowth(s Settings, log *slog.Logger, n *news) *growth {
	return &growth{settings: s, log: log, news: n}
}

// begin says how large the disks are with which the machine starts.
func (g *growth) begin(disks map[string]opened) {
	sizes := map[string]int64{}
	for name, d := range disks {
		sizes[name] = d.size
	}
	g.note(sizes, "")
}

// run looks for larger disks until the context ends.
func (g *growth) run(ctx context.Context, monitor func() *qmp.Client) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.look(ctx, monitor())
		}
	}
}

// look resizes each disk that has become larger. What fails is tried again.
func (g *growth) look(ctx context.Context, monitor *qmp.Client) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	g.mu.Lock()
	sizes := maps.Clone(g.sizes)
	g.mu.Unlock()
	var errs []error
	for _, d := range g.settings.disks() {
		size, err := sizeOf(g.settings.device(d))
		if err == nil && size <= sizes[d.Name] {
			continue
		}
		if err == nil {
			err = monitor.BlockResize(ctx, qemu.Disk{Serial: disk.Serial(d.Name)}.NodeName(), size)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("disk %s: %w", d.Name, err))
			continue
		}
		g.log.Info("A disk has become larger", "disk", d.Name, "from", sizes[d.Name], "to", size)
		sizes[d.Name] = size
	}
	if ctx.Err() != nil {
		return
	}
	problem := ""
	if err := errors.Join(errs...); err != nil {
		problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	g.note(sizes, problem)
}

func (g *growth) note(sizes map[string]int64, problem string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if maps.Equal(g.sizes, sizes) && g.problem == problem {
		return
	}
	if problem != "" {
		g.log.Warn("The guest could not be notified of a larger disk", "problem", problem)
	}
	g.sizes, g.problem = sizes, problem
	g.tell()
}

// report adds what is known to a report.
func (g *growth) report(r *vmconfig.Report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Disks = maps.Clone(g.sizes)
	r.AddProblem(vmconfig.PartDisks, g.problem)
}

// sizeOf returns the size of a block device or regular file in bytes. It reads nothing.
func sizeOf(path string) (size int64, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	size, err = file.Seek(0, io.SeekEnd)
	return size, errors.Join(err, file.Close())
}
