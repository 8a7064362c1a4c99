package ociimage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// Local is an image that comes from no registry, but from a file of this host.
type Local struct {
	// Reference says for people where it comes from.
	Reference string
	// Digest is that of the file, sha256: and 64 hexadecimal digits. It has to cover all that the image is made of.
	Digest string
	// Platform is that of the image, such as linux/amd64, and Process what it runs.
	Platform string
	Process  Process
	// Layers returns the layers, the lowest first, and what ends their use. It is called if the image is not in the cache.
	// What it writes meanwhile is to be in the directory, which is on the file system of the cache, and gone after release.
	Layers func(ctx context.Context, directory string, limits Limits) (layers []Layer, release func() error, err error)
}

// Add makes sure that an image of this host is in the cache, and returns it. It is made and kept as one that is pulled, with
// the same limits, and pruned as one, but no pull ever gets it.
//
// The error is a *PlatformError, MalformedError, *disk.FullError, one of Local.Layers, or the cause of ctx if that ended. In
// none of these cases anything is left of an image that was not there before.
func (c *Cache) Add(ctx context.Context, local Local) (Image, error) {
	if !digestPattern.MatchString(local.Digest) {
		return Image{}, fmt.Errorf("making the image %s: %q is no digest of the kind sha256", local.Reference, local.Digest)
	}
	if !fits(local.Platform, c.platform()) {
		return Image{}, &PlatformError{Reference: local.Reference, Wanted: c.platform(), Available: []string{words(local.Platform)}}
	}
	root, err := filepath.Abs(c.Directory)
	if err != nil {
		return Image{}, err
	}
	p := &pull{
		cache: c, ref: reference{text: local.Reference}, images: filepath.Join(root, imagesName),
		progress: &progress{what: local.Reference, every: c.patience().every, tell: c.Progress},
	}
	image, err := p.add(ctx, local)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Image{}, fmt.Errorf("making the image %s: %w", local.Reference, err)
	}
	return image, nil
}

// add returns an image that is in the cache, or makes it.
func (p *pull) add(ctx context.Context, local Local) (_ Image, err error) {
	directory := filepath.Join(p.images, slotOf(local.Digest))
	if use := slots.Find(directory); use != nil {
		if r := load(directory); r != nil && r.untouched(directory) {
			use.Touch()
			return *p.found(r, directory, use), nil
		}
		use.Drop()
	}
	slot, leave, err := p.enter(ctx, directory)
	if err != nil {
		return Image{}, err
	}
	defer leave(&err)
	if r := load(directory); r != nil {
		if image, err := p.share(ctx, slot, r); err != nil || image != nil {
			return given(image), err
		}
		p.progress.say("its file system is damaged, creating it again")
	}
	r := &record{Version: recordVersion, Digest: local.Digest, Platform: local.Platform, Process: local.Process, Origins: []origin{}}
	if err := p.packLocal(ctx, directory, local, r); err != nil {
		return Image{}, err
	}
	if err := r.save(directory); err != nil {
		return Image{}, err
	}
	image, err := p.share(ctx, slot, r)
	if err == nil && image == nil {
		err = fmt.Errorf("%s has changed while it was made", rootName)
	}
	return given(image), err
}

func (p *pull) packLocal(ctx context.Context, directory string, local Local, r *record) error {
	p.progress.say("reading its layers")
	layers, release, err := local.Layers(ctx, directory, p.cache.limits())
	if err != nil {
		return disk.ExplainFull(directory, 0, err)
	}
	return errors.Join(p.pack(ctx, directory, layers, r), release())
}
