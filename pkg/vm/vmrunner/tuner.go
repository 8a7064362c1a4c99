package vmrunner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

const (
	// watchEvery is how often it is looked whether the machine still has what it had.
	watchEvery = 15 * time.Second
	// retryAfter is how long after a change that failed it is tried again: a guest that has booted meanwhile may react.
	retryAfter = time.Minute
	// bootTime is how long a guest may take to load the driver of its balloon, before it is reported that it has none.
	bootTime = 2 * time.Minute
	// insertTime is how long the media of the start may take, which a guest waits for.
	insertTime = 20 * time.Second
	// cleanupTimeout bounds what is done after a change that was given up.
	cleanupTimeout = 10 * time.Second
)

// unknown is the medium of a drive in which a change may have been made or not. It is no file's name.
const unknown = "\x00"

// tuner brings a running machine to what is wanted of it. What it knows is level-triggered: it always works on the last
// thing that was wanted, and gives up on an earlier one.
type tuner struct {
	settings Settings
	log      *slog.Logger
	// setPowerdown changes how long the guest may take to shut down.
	setPowerdown func(time.Duration)

	mu sync.Mutex
	// wanted is what the machine is to be; ordered says that an operator said so.
	wanted  vmconfig.Live
	ordered bool
	// started is what the machine was started with, and since when.
	started vmconfig.Live
	since   time.Time
	// done is what the last pass was about that came to its end; nil if there was none.
	done *vmconfig.Live
	// unreachable says why QEMU cannot read from a URL; nil if it can.
	unreachable error
	have
	// woken is closed when something else is wanted.
	woken chan struct{}
	*news
}

// have is what a machine has.
type have struct {
	busy bool
	// pending says that the guest may still reach the memory that is wanted.
	pending bool
	cpus    int
	ram     int64
	media   []string
	// problems say why it is not what is wanted, by part.
	problems map[string]string
}

func newTuner(s Settings, log *slog.Logger, n *news, setPowerdown func(time.Duration)) *tuner {
	return &tuner{settings: s, log: log, setPowerdown: setPowerdown, wanted: all(s.Machine), woken: make(chan struct{}), news: n}
}

// begin says what the machine is started with.
func (t *tuner) begin(live vmconfig.Live, unreachable error) {
	t.set(func() {
		t.started, t.since, t.unreachable = live, time.Now(), unreachable
		t.have = have{cpus: live.CurrentCPUs, media: make([]string, len(live.Media))}
		if !t.ordered {
			t.wanted = live
		}
		// With that, QEMU is started.
		t.done, t.busy = &live, !t.wanted.Same(live)
	})
}

// insertFirst inserts the media with which the machine starts, before its firmware looks for them. A machine without one
// of them starts, too: run tries again.
func (t *tuner) insertFirst(ctx context.Context, monitor *qmp.Client) {
	ctx, cancel := context.WithTimeout(ctx, insertTime)
	defer cancel()
	if err := t.changeMedia(ctx, monitor, t.started.Media); err != nil {
		t.log.Error("The machine starts without a CD", "error", err)
		t.set(func() { t.problems = map[string]string{vmconfig.PartMedia: err.Error()} })
	}
}

// order says what an operator wants.
func (t *tuner) order(live vmconfig.Live) {
	t.set(func() {
		if t.ordered && t.wanted.Same(live) {
			return
		}
		t.wanted, t.ordered = live, true
		if t.done != nil && !t.done.Same(live) {
			t.busy, t.pending, t.problems = true, false, nil
		}
		close(t.woken)
		t.woken = make(chan struct{})
	})
}

// latest returns what an operator ordered last, if one did.
func (t *tuner) latest() (vmconfig.Live, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted, t.ordered
}

// plugged returns how many CPUs QEMU has; 0 if that is not known.
func (t *tuner) plugged() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cpus
}

// set changes what the tuner knows, and wakes all that wait for it.
func (t *tuner) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	t.tell()
}

// report adds what the tuner knows to a report.
func (t *tuner) report(r *vmconfig.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Wanted, r.Busy, r.CPUs, r.RAM, r.Problems = t.wanted, t.busy || t.pending, t.cpus, t.ram, maps.Clone(t.problems)
}

// run brings the machine to what is wanted until the context ends.
func (t *tuner) run(ctx context.Context, monitor func() *qmp.Client) {
	for ctx.Err() == nil {
		t.mu.Lock()
		wanted, woken := t.wanted, t.woken
		t.mu.Unlock()
		failed := t.pass(ctx, woken, monitor(), wanted)
		t.rest(ctx, woken, failed, monitor)
	}
}

// pass makes all changes once, and returns whether one has to be tried again. It ends early if something else is wanted.
func (t *tuner) pass(ctx context.Context, woken chan struct{}, monitor *qmp.Client, wanted vmconfig.Live) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-woken:
			cancel()
		case <-ctx.Done():
		}
	}()
	problems, again := t.adjust(ctx, monitor, wanted)
	superseded := ctx.Err() != nil
	t.set(func() {
		if superseded = superseded || t.woken != woken; !superseded {
			t.busy, t.pending, t.problems, t.done = false, again, problems, &wanted
		}
	})
	if superseded {
		return false
	}
	for part, problem := range problems {
		t.log.Warn("The machine differs from its configuration", "part", part, "problem", problem)
	}
	return again || len(problems) > 0
}

// rest waits until something else is wanted, until a change is due again, or until the machine has something else than
// after the last pass.
func (t *tuner) rest(ctx context.Context, woken chan struct{}, failed bool, monitor func() *qmp.Client) {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	var again <-chan time.Time
	if failed {
		again = time.After(retryAfter)
	}
	for {
		select {
		case <-watch.C:
			// A guest that boots again has all memory until it has loaded its driver, and QEMU keeps the target.
			if t.look(ctx, monitor()) && again == nil {
				again = time.After(retryAfter)
			}
		case <-ctx.Done():
			return
		case <-woken:
			return
		case <-again:
			return
		}
	}
}

// look looks what the machine has, and returns whether that differs from what it had.
func (t *tuner) look(ctx context.Context, monitor *qmp.Client) (differs bool) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	if ram, err := monitor.Balloon(ctx); err == nil {
		if differs = t.hasMemory(ram); differs {
			t.since = time.Now() // a guest that boots again has to load its driver again
		}
	}
	if slots, err := monitor.HotpluggableCPUs(ctx); err == nil {
		differs = t.hasCPUs(qmp.PluggedCPUs(slots)) || differs
	}
	return differs
}

func (t *tuner) hasCPUs(count int) (differs bool) {
	t.mu.Lock()
	differs = t.cpus != count
	t.mu.Unlock()
	if differs {
		t.set(func() { t.cpus = count })
	}
	return differs
}

// hasMemory notes the size of the guest, and returns whether it differs from the one before and from what is wanted. A
// guest that has reached what is wanted after all has no problem.
func (t *tuner) hasMemory(bytes int64) (differs bool) {
	t.mu.Lock()
	same, wanted := t.ram == bytes, min(t.wanted.CurrentRAM, t.settings.Machine.MaximumRAM)
	t.mu.Unlock()
	if same {
		return false
	}
	t.set(func() {
		t.ram, t.pending = bytes, bytes != wanted && t.problems[vmconfig.PartRAM] == ""
		if bytes == wanted {
			delete(t.problems, vmconfig.PartRAM)
		}
	})
	return bytes != wanted
}

// adjust brings the machine to what is wanted. It returns why a part is not, and whether it has to be tried again.
func (t *tuner) adjust(ctx context.Context, monitor *qmp.Client, wanted vmconfig.Live) (problems map[string]string, again bool) {
	live, problems := fit(wanted, t.settings.Machine)
	if live.PowerdownTimeout > 0 {
		t.setPowerdown(time.Duration(live.PowerdownTimeout) * time.Second)
	}
	note := func(part string, err error) {
		if err != nil {
			problems[part] = err.Error()
		}
	}
	if wanted.Media != nil && problems[vmconfig.PartMedia] == "" {
		note(vmconfig.PartMedia, t.changeMedia(ctx, monitor, live.Media))
	}
	note(vmconfig.PartCPUs, t.changeCPUs(ctx, monitor, live.CurrentCPUs))
	err := t.changeMemory(ctx, monitor, live.CurrentRAM)
	if errors.Is(err, errNoBalloon) && time.Since(t.since) < bootTime {
		return problems, true
	}
	note(vmconfig.PartRAM, err)
	return problems, false
}

func (t *tuner) changeCPUs(ctx context.Context, monitor *qmp.Client, wanted int) error {
	err := monitor.SetCPUs(ctx, wanted)
	slots, counting := monitor.HotpluggableCPUs(ctx)
	if counting == nil {
		t.hasCPUs(qmp.PluggedCPUs(slots))
	}
	return errors.Join(err, counting)
}

func (t *tuner) changeMemory(ctx context.Context, monitor *qmp.Client, wanted int64) error {
	actual, err := monitor.SetMemory(ctx, wanted)
	if actual > 0 {
		t.hasMemory(actual)
	}
	if errors.Is(err, qmp.ErrGuestSilent) {
		err = errNoBalloon
	}
	return err
}

var errNoBalloon = errors.New("the guest does not give memory back, or take it: is the driver of its balloon (virtio_balloon) loaded?")

// changeMedia changes what is in the CD drives.
func (t *tuner) changeMedia(ctx context.Context, monitor *qmp.Client, wanted []string) error {
	var errs []error
	for i, text := range wanted {
		before := t.medium(i)
		if before == text {
			continue
		}
		err := t.changeMedium(ctx, monitor, i, text)
		switch {
		case err == nil:
			t.setMedium(i, text)
		case ctx.Err() == nil:
			// QEMU keeps the medium that it has when it cannot open another, or when the guest does not open the tray.
			t.setMedium(i, before)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (t *tuner) medium(drive int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.media[drive]
}

func (t *tuner) setMedium(drive int, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.media[drive] = text
}

func (t *tuner) changeMedium(ctx context.Context, monitor *qmp.Client, drive int, text string) error {
	where, err := place(text)
	if err != nil {
		return err
	}
	if where == inNetwork && t.unreachable != nil {
		return t.unreachable
	}
	// A change that is given up may have been made, so it is not known what is in the drive until one succeeds.
	switch id := driveID(drive); where {
	case inNetwork:
		t.setMedium(drive, unknown)
		return monitor.ChangeCD(ctx, id, text)
	case inRepository:
		return t.insertFile(ctx, monitor, drive, text)
	default:
		t.setMedium(drive, unknown)
		return monitor.EjectCD(ctx, id)
	}
}

// insertFile passes a file of the image repository to QEMU, which cannot open it by itself.
func (t *tuner) insertFile(ctx context.Context, monitor *qmp.Client, drive int, name string) error {
	file, err := openImage(t.settings.Images, name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	path, release, err := monitor.PassFile(ctx, file)
	if err != nil {
		return err
	}
	t.setMedium(drive, unknown)
	err = monitor.ChangeCD(ctx, driveID(drive), path)
	// QEMU keeps the file open while it is in the drive.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return errors.Join(err, release(cleanup))
}
