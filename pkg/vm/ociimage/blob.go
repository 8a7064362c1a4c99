package ociimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

const (
	// blobName is the file of a blob in its slot, complete and verified. partName is one that is being downloaded.
	blobName = "blob"
	partName = "blob.part"
	// ownedPrefix begins the names of slots that belong to a repository.
	ownedPrefix = "repository-"
)

// blob is a layer or a configuration that was downloaded. It is not pruned before its use ends.
type blob struct {
	file string
	use  *slots.Use
}

// slotOf returns the name of the slot of what has a digest.
func slotOf(digest string) string { return strings.ReplaceAll(digest, ":", "-") }

// openSlot is the slot of a blob that everyone on the node may have: it was downloaded without credentials of a tenant.
func (p *pull) openSlot(d v1.Descriptor) string {
	return filepath.Join(p.cache.Directory, blobsName, slotOf(d.Digest.String()))
}

// blobSlot is the slot that a blob is downloaded to. What comes by credentials of a tenant stays within its repository,
// from which the manifest that names it has just come. Elsewhere it would be given to each tenant who knows its digest:
// a registry of theirs serves a manifest with the digest, and need not have the blob. Its name is never that of an open
// slot: the name is a sum of a text that a tenant may push as a blob, and claim to be as long as the one of the repository.
func (p *pull) blobSlot(d v1.Descriptor) string {
	if p.auth == nil {
		return p.openSlot(d)
	}
	sum := sha256.Sum256([]byte(p.ref.name.Context().Name() + " " + d.Digest.String()))
	return filepath.Join(p.cache.Directory, blobsName, ownedPrefix+hex.EncodeToString(sum[:]))
}

// there returns a blob that is complete in a slot, nil if there is none.
func (p *pull) there(directory string, size int64) *blob {
	use := slots.Find(directory)
	if use == nil {
		return nil
	}
	file := filepath.Join(directory, blobName)
	if !isWhole(file, size) {
		use.Drop()
		return nil
	}
	use.Touch()
	p.progress.add(size)
	return &blob{file, use}
}

// blob returns a blob, and downloads it if it is not there. The same blob may belong to several images: the first one
// that needs it downloads it, and the others wait.
func (p *pull) blob(ctx context.Context, d v1.Descriptor) (_ *blob, err error) {
	directory := p.blobSlot(d)
	for _, place := range []string{p.openSlot(d), directory} {
		if b := p.there(place, d.Size); b != nil {
			return b, nil
		}
	}
	file := filepath.Join(directory, blobName)
	slot, err := slots.Enter(ctx, directory, p.waiting("layer"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, slot.Close()) }()
	if isWhole(file, d.Size) {
		p.progress.add(d.Size)
	} else if err := p.download(ctx, d, file); err != nil {
		now := time.Now()
		_ = os.Chtimes(directory, now, now) // at worst the part is pruned too early
		return nil, err
	}
	use, err := slot.Share()
	if err != nil {
		return nil, err
	}
	return &blob{file, use}, nil
}

// isWhole reports whether a blob is there. One with another size than the manifest says is not what it means.
func isWhole(file string, size int64) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// waiting tells that another process has what this one needs.
func (p *pull) waiting(what string) slots.Patience {
	t := p.cache.patience()
	return slots.Patience{Poll: t.poll, Every: t.every, Waiting: func(holder *disk.Holder) {
		p.progress.say("waiting for %s, which gets the same %s", holder, what)
	}}
}

// download gets a blob from the first registry that has it.
func (p *pull) download(ctx context.Context, d v1.Descriptor, file string) error {
	part := filepath.Join(filepath.Dir(file), partName)
	err := p.each(ctx, func(s *source) error {
		return (&download{source: s, progress: p.progress, want: d, part: part}).run(ctx)
	})
	if err != nil {
		return err
	}
	return slots.Rename(part, file)
}

// forget removes blobs that are of no more use, unless other images need them.
func (p *pull) forget(blobs []v1.Descriptor) error {
	var errs []error
	for _, d := range blobs {
		errs = append(errs, slots.Discard(p.blobSlot(d)))
	}
	return errors.Join(errs...)
}

// each asks one registry after the other. One that fails, and does not only lack what is asked for, is not asked again
// unless it is the last.
func (p *pull) each(ctx context.Context, get func(*source) error) error {
	var failed failures
	for i, s := range p.sources {
		last := i == len(p.sources)-1
		if s.isGone() && !last {
			continue
		}
		err := get(s)
		if err == nil || ctx.Err() != nil || !isFailure(err) {
			return err
		}
		failed = append(failed, err)
		if !last {
			s.leave(err)
			p.progress.say("%v; asking the next registry", err)
		}
	}
	return failed
}

// isFailure reports whether a registry is to blame, so that another one may do better.
func isFailure(err error) bool {
	var of *failure
	return errors.As(err, &of)
}

// watchdog ends the context of a download to which hardly anything comes.
type watchdog struct {
	timer *time.Timer
	stall time.Duration
	came  int
}

// enough is how many bytes have to come within the time that a registry may be silent.
const enough = 64 << 10

func (w *watchdog) saw(n int) {
	if w.came += n; w.came >= enough {
		w.came = 0
		w.timer.Reset(w.stall)
	}
}

// explainFull returns a *disk.FullError if there is no room for the rest of a file.
func explainFull(path string, rest int64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("storing a layer: %w", disk.ExplainFull(path, rest, err))
}
