// Package microvm keeps the machines of smolvm's API on one node: their records and disks, and the processes that run
// them (package instance), which outlive it. It implements what package server serves.
//
// What a machine does is never remembered, but asked: its process answers on its socket, or its lock is free. Disks are
// removed only while this package holds the lock of their directory, which QEMU inherits: then no QEMU has them.
package microvm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sync/errgroup"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// Settings are those of the machines of a node.
type Settings struct {
	// State is a directory for records, disks and images, and Run one for sockets, which a reboot of the host may
	// empty.
	State string
	Run   string
	// Images is the directory of the cache of images.
	Images string
	// Artifacts is the directory of the .smolmachine files that machines may be made of. Only the node's administrator
	// may write to it.
	Artifacts string
	// Host is what all machines have in common.
	Host instance.Host
	// Publish is the address at which ports are published.
	Publish netip.Addr
	// PublishPorts are the ports of the host that machines may publish. Machines that run keep theirs.
	PublishPorts PortRanges
	// Egress is the policy of machines without restrictions of their own.
	Egress egress.Policy
	// Resolvers answer guests' queries for names.
	Resolvers []netip.AddrPort
	// Version is the server's.
	Version string
	// SurvivesRestart says that machines outlive the server's pod.
	SurvivesRestart bool
	// Meter counts what takes long. May be nil.
	Meter Meter
}

// Meter counts what takes long. Its methods are called concurrently.
type Meter interface {
	// Booted counts a machine that took a time from its start until its guest answered. A boot that no request waited
	// for until its end is not counted.
	Booted(took time.Duration)
	// Pulled counts an image that took a time to pull. An image from the cache, or of an artifact, is not counted.
	Pulled(took time.Duration)
}

// Images gets images.
type Images interface {
	// Get returns an image, which stays in the cache until it is released.
	Get(ctx context.Context, reference string, auth *authn.AuthConfig) (ociimage.Image, error)
	// Open returns an image that is in the cache; fs.ErrNotExist if it is not.
	Open(digest string) (ociimage.Image, error)
	// Add returns an image that is made of a file of this host, and stays in the cache until it is released.
	Add(ctx context.Context, local ociimage.Local) (ociimage.Image, error)
}

// Keepers runs and reaches the processes of machines. Directories are those of machines.
type Keepers interface {
	// Start starts the process of a machine whose plan is in its directory, and which inherits the lock. It returns a
	// channel that is closed when the process has ended.
	Start(directory string, lock *disk.Lock) (ended <-chan struct{}, err error)
	// Alive reports whether the machine has a process, and takes no lock.
	Alive(directory string) (bool, error)
	// Status asks the process.
	Status(ctx context.Context, directory string) (instance.Status, error)
	// Stop tells it to shut the machine down.
	Stop(ctx context.Context, directory string) error
	// Kill kills it and QEMU.
	Kill(ctx context.Context, directory string) error
	// Reach returns what talks to the guest.
	Reach(directory string) instance.Client
	// Clean removes what a process that has ended left outside of the machine's directory.
	Clean(directory string) error
}

// Manager keeps the machines of a node. Only one may use a state directory.
type Manager struct {
	settings Settings
	store    store
	images   Images
	keepers  Keepers
	log      *slog.Logger
	started  time.Time
	boot     string
	usage    usage
	// lock and runLock are those of the directories State and Run.
	lock, runLock *disk.Lock
	// choice is the accelerator of this host, nil until that is known.
	choice atomic.Pointer[qemu.Choice]
	// step is called between the steps of what can be interrupted by a crash. Tests end there.
	step func(name string)
	// now is the clock.
	now      func() time.Time
	patience patience

	// reading has one element for each artifact that is being read.
	reading chan struct{}
	// starting are the machines that are being started again.
	starting sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*machine
}

// Open returns the Manager of a state directory. It adopts machines that run, and removes what interrupted creations
// and deletions left. Run supervises them.
func Open(settings Settings, images Images, keepers Keepers, log *slog.Logger) (*Manager, error) {
	m := &Manager{
		settings: settings, store: store{root: filepath.Join(settings.State, "machines")}, images: images, keepers: keepers, log: log,
		started: time.Now(), boot: rand.Text(), step: func(string) {}, now: time.Now, patience: usualPatience, machines: map[string]*machine{},
		reading: make(chan struct{}, readers),
	}
	if err := settings.makeDirectories(m.store.root); err != nil {
		return nil, err
	}
	var err error
	if m.lock, err = disk.Acquire(settings.State); err != nil {
		return nil, fmt.Errorf("opening the state directory: %w; only one server may use it", err)
	}
	// Sockets are named after machines: those of another server's would be taken for this one's.
	if m.runLock, err = disk.Acquire(settings.Run); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the directory of sockets: %w; only one server may use it", err), m.lock.Close())
	}
	f, err := m.store.load()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the records of machines: %w", err), m.Close())
	}
	for _, err := range f.broken {
		log.Error("Cannot read the record of a machine", "error", err)
	}
	for _, directory := range f.leftovers {
		err := m.endDirectory(context.Background(), directory)
		if err == nil {
			err = errors.Join(m.discard(directory), m.keepers.Clean(directory))
		}
		if err != nil {
			log.Error("Cannot remove the remains of an interrupted operation", "directory", directory, "error", err)
		}
	}
	for _, r := range f.records {
		m.machines[r.Name] = newMachine(r)
	}
	return m, nil
}

// modeOfImages keeps images and artifacts to root: some need a password. QEMU inherits its own one open.
const modeOfImages = 0o700

// maxSocketPath is how long the path of a socket may be, in bytes (unix(7)).
const maxSocketPath = 107

// makeDirectories makes what is missing.
func (s Settings) makeDirectories(machines string) error {
	longest := filepath.Join(s.Run, "m", hashOf(""), keeper.SocketName)
	if len(longest) > maxSocketPath {
		return fmt.Errorf("the directory of sockets %s is too long: %s has %d bytes, and the path of a socket can have %d", s.Run, longest, len(longest), maxSocketPath)
	}
	if err := os.MkdirAll(machines, modeOfState); err != nil {
		return fmt.Errorf("making the directory of machines: %w", err)
	}
	if err := os.MkdirAll(s.Run, modeOfState); err != nil {
		return fmt.Errorf("making the directory of sockets: %w", err)
	}
	for what, directory := range map[string]string{"images": s.imagesBelow(), "artifacts": s.Artifacts} {
		if directory == "" {
			continue
		}
		if err := os.MkdirAll(directory, modeOfImages); err != nil {
			return fmt.Errorf("making the directory of %s: %w", what, err)
		}
	}
	return nil
}

// imagesBelow returns the directory of images in the cache; empty if there is none.
func (s Settings) imagesBelow() string {
	if s.Images == "" {
		return ""
	}
	return filepath.Join(s.Images, "images")
}

// Close lets another Manager use the state directory. The machines run on.
func (m *Manager) Close() error { return errors.Join(m.lock.Close(), m.runLock.Close()) }

// modeOfState lets QEMU's user pass through the directories, but not list them. The files are for root alone, and QEMU
// inherits them open.
const modeOfState = 0o711

// find returns a machine. The error is NOT_FOUND if there is none.
func (m *Manager) find(name string) (*machine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := m.machines[name]; found != nil {
		return found, nil
	}
	return nil, notFound(name)
}

func notFound(name string) error {
	return api.Errorf(api.CodeNotFound, "machine '%.140s' not found", name)
}

func (m *Manager) all() []*machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*machine
	for _, one := range m.machines {
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b *machine) int { return strings.Compare(a.name, b.name) })
	return found
}

// change stores a change of the record. The caller holds the machine.
func (m *Manager) change(one *machine, change func(*Record)) error {
	r := one.get()
	change(&r)
	if err := m.store.save(r); err != nil {
		return storeError(err)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.record = r
	return nil
}

// storeError gives an error of the disk its code.
func storeError(err error) error {
	if isFull(err) {
		return api.Errorf(api.CodeDiskFull, "%v", err)
	}
	return err
}

// List returns all machines, ordered by name.
func (m *Manager) List(ctx context.Context) ([]api.Machine, error) {
	all := m.all()
	machines := make([]api.Machine, len(all))
	var group errgroup.Group
	group.SetLimit(16)
	for n, one := range all {
		group.Go(func() error { machines[n] = m.describe(ctx, one); return nil })
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return machines, nil
}

// Get returns one machine.
func (m *Manager) Get(ctx context.Context, name string) (api.Machine, error) {
	one, err := m.find(name)
	if err != nil {
		return api.Machine{}, err
	}
	return m.describe(ctx, one), nil
}

// Create creates a machine, which does not run yet. If the same machine exists, it is returned. While an artifact is
// read, Stop, Delete and Drain give it up.
func (m *Manager) Create(ctx context.Context, request api.CreateRequest) (api.Machine, error) {
	if request.Name == "" {
		request.Name = "vm-" + strings.ToLower(rand.Text()[:8])
	}
	if err := checkName(request.Name); err != nil {
		return api.Machine{}, err
	}
	spec, disks, err := specOf(request, m.settings.PublishPorts)
	if err != nil {
		return api.Machine{}, err
	}
	r := Record{Version: formatVersion, Name: request.Name, Spec: spec, sizes: disks, Owner: request.Owner, SpecHash: request.SpecHash, Created: m.now().Truncate(time.Second)}
	one := newMachine(r)
	one.busy <- struct{}{}
	defer func() { <-one.busy }()
	for other := m.reserve(one); other != nil; other = m.reserve(one) {
		found, err := m.existing(ctx, other, r)
		if !api.IsNotFound(err) { // it was deleted meanwhile, or its creation was given up
			return found, err
		}
	}
	if err := m.build(ctx, one); err != nil {
		m.forget(one)
		return api.Machine{}, err
	}
	return m.describe(ctx, one), nil
}

// reserve takes the name of a new machine, or returns the one that has it.
func (m *Manager) reserve(one *machine) *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.machines[one.name]; other != nil {
		return other
	}
	m.machines[one.name] = one
	return nil
}

// forget gives up the name of a machine.
func (m *Manager) forget(one *machine) {
	m.mu.Lock()
	delete(m.machines, one.name)
	m.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	one.gone = true
}

// existing answers the creation of a machine that exists: a repeated request succeeds. The error is NOT_FOUND if it
// no longer exists.
func (m *Manager) existing(ctx context.Context, other *machine, r Record) (api.Machine, error) {
	release, err := other.hold(ctx)
	if err != nil {
		return api.Machine{}, err
	}
	defer release()
	if known := other.get(); known.Spec.Hash() != r.Spec.Hash() || known.SpecHash != r.SpecHash || !sameOwner(known.Owner, r.Owner) {
		return api.Machine{}, api.Errorf(api.CodeConflict, "machine '%s' already exists and is another one", r.Name)
	}
	return m.describe(ctx, other), nil
}

func sameOwner(a, b *api.Owner) bool { return or(a, api.Owner{}) == or(b, api.Owner{}) }
