package microvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// Start starts a machine and waits until its guest answers. It does nothing if the machine runs. If the guest is silent,
// the machine is killed and started afresh. After an error no process of the machine is left, unless ctx ended while the
// guest booted: then it keeps booting.
func (m *Manager) Start(ctx context.Context, name string, request api.StartRequest) (api.Machine, error) {
	one, release, err := m.hold(ctx, name)
	if err != nil {
		return api.Machine{}, err
	}
	defer release()
	before := one.get()
	if err := m.start(ctx, one, request); err != nil {
		return api.Machine{}, m.because(ctx, one, before, err)
	}
	return m.describe(ctx, one), nil
}

// because stores why a machine does not run, and returns that error. The desired state is reset to what it was before.
// An attempt that was canceled says nothing about the machine.
func (m *Manager) because(ctx context.Context, one *machine, before Record, err error) error {
	if ctx.Err() != nil || errors.Is(err, errInterrupted) {
		return err
	}
	known := api.ErrorOf(err)
	if stored := m.change(one, func(r *Record) {
		r.Wanted, r.RetryAt, r.Message, r.Started = before.Wanted, before.RetryAt, known.Message, startedAfter(err, before, *r)
	}); stored != nil {
		return errors.Join(known, stored)
	}
	return known
}

// startedAfter returns when a machine was last started, after an attempt that failed. Ports are published before anything of
// the guest runs, so a machine that waits for one has not been started.
func startedAfter(err error, before, attempt Record) time.Time {
	if api.CodeOf(err) == api.CodePortInUse {
		return before.Started
	}
	return attempt.Started
}

// errInterrupted says that a start was given up because the machine is to be stopped or deleted.
var errInterrupted = api.Errorf(api.CodeConflict, "the start was given up because the machine is being stopped or deleted")

// start needs the machine to be held. Stop and Delete interrupt it.
func (m *Manager) start(ctx context.Context, one *machine, request api.StartRequest) error {
	ctx, done := one.interruptible(ctx)
	defer done()
	err := m.startNow(ctx, one, request)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return errInterrupted
	}
	return err
}

func (m *Manager) startNow(ctx context.Context, one *machine, request api.StartRequest) error {
	r := one.get()
	p := phaseOf(m.observe(ctx, r))
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	switch p {
	case phaseUp:
		return m.want(one, true)
	case phaseStarting: // by a request that was given up, or by an earlier server
		if err := m.want(one, true); err != nil {
			return err
		}
		return m.awaitReady(ctx, one, nil)
	case phaseEnding, phaseSilent:
		if err := m.makeWay(ctx, one, p); err != nil {
			return err
		}
	}
	if err := m.settings.PublishPorts.checkStart(r); err != nil {
		return err
	}
	defer one.tell("the machine starts: getting the image " + cmp.Or(r.Spec.Image, r.Spec.From))()
	image, err := m.image(ctx, r, authOf(request))
	if err != nil {
		return err
	}
	defer func() { _ = image.Release() }() // the machine's own process keeps it
	return m.launch(ctx, one, image)
}

// makeWay ends an unhealthy machine, or waits for the end of one that is being shut down.
func (m *Manager) makeWay(ctx context.Context, one *machine, p phase) error {
	if p == phaseEnding {
		if ok, err := m.awaitFree(ctx, m.store.directory(one.name), m.patience.shutDown, nil); ok || err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.end(ctx, one)
}

// image gets the image of a machine: at its first start what its tag means then, and later the same again. If that is in
// the cache, no registry is asked: the machine had it before.
func (m *Manager) image(ctx context.Context, r Record, auth *authn.AuthConfig) (ociimage.Image, error) {
	if r.Spec.From != "" {
		return m.artifactImage(ctx, r)
	}
	reference := r.Spec.Image
	if r.Digest != "" {
		image, err := m.images.Open(r.Digest)
		if !errors.Is(err, fs.ErrNotExist) {
			return image, err
		}
		reference = withDigest(reference, r.Digest)
	}
	image, err := m.images.Get(ctx, reference, auth)
	if err != nil && ctx.Err() == nil {
		return image, imageError(reference, err)
	}
	if err == nil && image.Pulled > 0 && m.settings.Meter != nil {
		m.settings.Meter.Pulled(image.Pulled)
	}
	return image, err
}

// withDigest returns a reference by digest instead of by tag.
func withDigest(reference, digest string) string {
	if strings.Contains(reference, "@") {
		return reference
	}
	path := strings.LastIndex(reference, "/") + 1
	if tag := strings.LastIndex(reference[path:], ":"); tag >= 0 {
		reference = reference[:path+tag]
	}
	return reference + "@" + digest
}

func authOf(request api.StartRequest) *authn.AuthConfig {
	if request.RegistryAuth == nil {
		return nil
	}
	return &authn.AuthConfig{Username: request.RegistryAuth.Username, Password: request.RegistryAuth.Password}
}

// want stores what is wanted, if that is new.
func (m *Manager) want(one *machine, wanted bool) error {
	if r := one.get(); r.Wanted == wanted && !r.Failed && r.RetryAt.IsZero() && (wanted || r.Message == "") {
		return nil
	}
	return m.change(one, func(r *Record) {
		r.Wanted, r.Failed, r.RetryAt, r.Message = wanted, false, time.Time{}, ""
		if !wanted {
			r.Retries = 0
		}
	})
}

// launch starts the process of a machine with an image. What is wanted is stored before anything runs. The process
// inherits the lock of the machine's directory, so that at no moment the machine seems to have none.
func (m *Manager) launch(ctx context.Context, one *machine, image ociimage.Image) error {
	r := one.get()
	directory := m.store.directory(r.Name)
	if err := m.fit(directory, r.sizes); err != nil {
		return storeError(err)
	}
	plan, err := m.plan(r, image)
	if err != nil {
		return err
	}
	m.step("start: before the intent")
	if err := m.change(one, func(r *Record) {
		r.Wanted, r.Failed, r.RetryAt, r.Message, r.Started, r.Digest = true, false, time.Time{}, "", m.now(), image.Digest
	}); err != nil {
		return err
	}
	m.step("start: intent")
	if err := m.write(plan); err != nil {
		return storeError(err)
	}
	m.step("start: plan")
	lock, err := disk.Acquire(directory)
	if err != nil {
		return fmt.Errorf("starting machine '%s': %w", r.Name, err)
	}
	ended, err := m.keepers.Start(directory, lock)
	if err = errors.Join(err, lock.Close()); err != nil {
		return fmt.Errorf("starting the process of machine '%s': %w", r.Name, err)
	}
	m.step("start: process")
	return m.awaitReady(ctx, one, ended)
}

// plan is the plan for the process of a machine.
func (m *Manager) plan(r Record, image ociimage.Image) (instance.Plan, error) {
	s := r.Spec
	process := ociprocess.Process{Entrypoint: s.Entrypoint, Command: s.Cmd, Directory: s.Workdir}
	for _, v := range s.Env {
		process.Environment = append(process.Environment, v.Name+"="+v.Value)
	}
	network, err := m.network(s)
	if err != nil {
		return instance.Plan{}, err
	}
	return instance.Plan{
		Name: r.Name, Directory: m.store.directory(r.Name), Run: filepath.Join(m.settings.Run, "m", hashOf(r.Name)),
		CPUs: r.cpus(), MemoryMB: r.memoryMB(), Image: image.Digest, Images: m.settings.Images, Process: process, Network: network, Host: m.settings.Host,
	}, nil
}

// network is nil for a machine that neither reaches others nor publishes ports.
func (m *Manager) network(s Spec) (*instance.Network, error) {
	if !s.Network && len(s.Ports) == 0 {
		return nil, nil
	}
	policy := m.settings.Egress
	var err error
	policy.Outbound = s.Network
	policy.Allowed, policy.Restricted, err = s.allowed()
	n := &instance.Network{Ports: s.Ports, Publish: m.settings.Publish, Policy: policy}
	if s.Network {
		n.Resolvers = append([]netip.AddrPort{}, m.settings.Resolvers...)
	}
	return n, err
}

// write stores a plan, and makes the directory of sockets.
func (m *Manager) write(plan instance.Plan) error {
	text, err := plan.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(plan.Run, modeOfState); err != nil {
		return err
	}
	return slots.Replace(filepath.Join(plan.Directory, instance.PlanName), text)
}

// readyPoll is how often a machine that starts is checked.
const readyPoll = 50 * time.Millisecond

// patience is how long to wait for processes.
type patience struct {
	// appear is how long the process of a machine may take until it answers, and then not answer.
	appear time.Duration
	// shutDown is longer than all stages of the keeper together.
	shutDown time.Duration
	// kill is how long a process may take to end after it was killed.
	kill time.Duration
}

var usualPatience = patience{appear: 20 * time.Second, shutDown: 30 * time.Second, kill: 10 * time.Second}

// awaitReady waits until the guest answers, or the process has ended, which it does by itself if the guest never
// answers. If ctx ends first, the machine keeps starting. ended may be nil.
func (m *Manager) awaitReady(ctx context.Context, one *machine, ended <-chan struct{}) error {
	r := one.get()
	look := time.NewTicker(readyPoll)
	defer look.Stop()
	lost := m.now().Add(m.patience.appear)
	for {
		over := isClosed(ended)
		o := m.observe(ctx, r)
		switch p := phaseOf(o); {
		case p == phaseUp || o.answers && o.status.Agent.Ready && p != phaseEnding:
			m.booted(r)
			m.step("start: ready")
			return nil
		case o.answers:
			lost = m.now().Add(m.patience.appear)
		case over || m.now().After(lost):
			return m.startError(ctx, one)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the guest of machine '%s', which is still starting: %w", r.Name, context.Cause(ctx))
		case <-ended:
			ended = nil
			lost = m.now()
		case <-look.C:
		}
	}
}

// booted counts the boot of a machine. An earlier server may have started it, and the host's clock may have been set since.
func (m *Manager) booted(r Record) {
	if m.settings.Meter != nil {
		m.settings.Meter.Booted(max(0, m.now().Sub(r.Started)))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// startError says why a machine did not start, once none of its processes is left.
func (m *Manager) startError(ctx context.Context, one *machine) error {
	r := one.get()
	directory := m.store.directory(r.Name)
	if err := m.end(context.WithoutCancel(ctx), one); err != nil {
		return err
	}
	end, err := instance.ReadEnd(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeInternal, "machine '%s' did not start: its process ended without a message; see %s", r.Name, filepath.Join(directory, instance.LogName))
	}
	if err != nil {
		return err
	}
	code := end.Code
	if code == "" {
		code = api.CodeInternal
	}
	text := fmt.Sprintf("machine '%s' did not start: %s", r.Name, end.Message)
	if last := lastLine(directory); last != "" && code != api.CodePortInUse {
		text += "; last line of the guest's console: " + last
	}
	return &api.Error{Code: code, Message: text}
}

// Resize makes the disks of a machine larger. The guest grows its file systems at its next start.
func (m *Manager) Resize(ctx context.Context, name string, request api.ResizeRequest) (api.Machine, error) {
	one, release, err := m.hold(ctx, name)
	if err != nil {
		return api.Machine{}, err
	}
	defer release()
	r := one.get()
	wanted, err := resized(r, request)
	if err != nil {
		return api.Machine{}, err
	}
	if p := phaseOf(m.observe(ctx, r)); p != phaseDown {
		return api.Machine{}, api.Errorf(api.CodeConflict, "machine '%s' must be stopped before resizing. Current state: %s", name, stateName(stateOf(r, p)))
	}
	// The record comes last: a disk that is larger than the record says does no harm, and is made larger again.
	if err := m.fit(m.store.directory(name), wanted); err != nil {
		return api.Machine{}, storeError(err)
	}
	m.step("resize: disks")
	if err := m.change(one, func(r *Record) { r.sizes = wanted }); err != nil {
		return api.Machine{}, err
	}
	return m.describe(ctx, one), nil
}

// resized returns the sizes that a request asks for.
func resized(r Record, request api.ResizeRequest) (sizes, error) {
	if request.StorageGB == nil && request.OverlayGB == nil {
		return sizes{}, api.Errorf(api.CodeBadRequest, "storageGb or overlayGb is missing")
	}
	wanted := sizes{StorageGB: or(request.StorageGB, r.StorageGB), OverlayGB: or(request.OverlayGB, r.OverlayGB)}
	if err := wanted.check(); err != nil {
		return sizes{}, api.Errorf(api.CodeBadRequest, "%v", err)
	}
	if wanted.StorageGB < r.StorageGB || wanted.OverlayGB < r.OverlayGB {
		return sizes{}, api.Errorf(api.CodeBadRequest, "disks only grow: machine '%s' has storageGb %d and overlayGb %d", r.Name, r.StorageGB, r.OverlayGB)
	}
	return wanted, nil
}

// stateName is the name of a state in smolvm's text of this conflict.
func stateName(s api.State) string {
	if s == api.StateRunning {
		return "Running"
	}
	return string(s)
}
