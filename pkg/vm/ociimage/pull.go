package ociimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// pull is one call of Get.
type pull struct {
	cache    *Cache
	ref      reference
	images   string
	guard    *guard
	sources  []*source
	auth     *authn.AuthConfig
	progress *progress
	begun    time.Time
}

func (c *Cache) newPull(ref reference, auth *authn.AuthConfig) (*pull, error) {
	root, err := filepath.Abs(c.Directory)
	if err != nil {
		return nil, err
	}
	guard := newGuard(c.Registries, c.patience().stall)
	all, err := c.sources(ref, auth, guard)
	if err != nil {
		return nil, err
	}
	return &pull{
		cache: c, ref: ref, images: filepath.Join(root, imagesName), guard: guard, sources: all, auth: auth, begun: time.Now(),
		progress: &progress{what: ref.text, every: c.patience().every, tell: c.Progress},
	}, nil
}

// get returns the image from the cache, or pulls it.
func (p *pull) get(ctx context.Context) (Image, error) {
	asked, sent := p.ref.digest, answer{}
	if asked != "" {
		if image, err := p.cached(ctx, asked, false); err != nil || image != nil {
			return given(image), err
		}
	} else {
		var err error
		if sent, err = p.resolve(ctx); err != nil {
			return Image{}, err
		}
		asked = sent.digest
		if image, err := p.cached(ctx, asked, true); err != nil || image != nil {
			return given(image), err
		}
	}
	manifest, digest, err := p.manifest(ctx, asked, sent)
	if err != nil {
		return Image{}, err
	}
	return p.fill(ctx, asked, digest, manifest)
}

func given(image *Image) Image {
	if image == nil {
		return Image{}
	}
	return *image
}

func (p *pull) origin(asked string) origin {
	return origin{Repository: p.ref.name.Context().Name(), Asked: asked, Secret: secretOf(asked, p.auth)}
}

// cached returns an image that is in the cache, nil if there is none. It takes no lock unless the image was touched.
func (p *pull) cached(ctx context.Context, asked string, allowed bool) (*Image, error) {
	directories, err := p.cache.known(p.images, p.origin(asked), allowed)
	if err != nil {
		return nil, err
	}
	for _, directory := range directories {
		if use := slots.Find(directory); use != nil {
			if r := load(directory); r != nil && r.untouched(directory) {
				use.Touch()
				return p.found(r, directory, use), nil
			}
			use.Drop()
		}
		if image, err := p.touched(ctx, directory); err != nil || image != nil {
			return image, err
		}
	}
	return nil, nil
}

func (p *pull) found(r *record, directory string, use *slots.Use) *Image {
	image := r.image(directory, use)
	image.Reference = p.ref.text
	return &image
}

// touched returns an image whose file system was touched, nil if it is damaged.
func (p *pull) touched(ctx context.Context, directory string) (_ *Image, err error) {
	slot, err := slots.Enter(ctx, directory, p.waiting("image"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, slot.Close()) }()
	r := load(directory)
	if r == nil {
		return nil, p.clear(slot)
	}
	return p.share(ctx, slot, r)
}

// share returns the image of a locked slot, nil if it is damaged.
func (p *pull) share(ctx context.Context, slot *slots.Slot, r *record) (*Image, error) {
	if right, err := r.verify(ctx, slot.Directory); err != nil || !right {
		return nil, err
	}
	use, err := slot.Share()
	if err != nil {
		return nil, err
	}
	return p.found(r, slot.Directory, use), nil
}

// clear removes a slot in which there is no image, so that nothing half is left.
func (p *pull) clear(slot *slots.Slot) error {
	if load(slot.Directory) != nil {
		return nil
	}
	_, err := slot.Remove()
	return err
}

// enter locks the slot of an image. The function that it returns is called with the caller's error: it clears the slot
// if there is one, and unlocks it.
func (p *pull) enter(ctx context.Context, directory string) (*slots.Slot, func(*error), error) {
	slot, err := slots.Enter(ctx, directory, p.waiting("image"))
	if err != nil {
		return nil, nil, err
	}
	return slot, func(failed *error) {
		if *failed != nil {
			*failed = errors.Join(*failed, p.clear(slot))
		}
		*failed = errors.Join(*failed, slot.Close())
	}, nil
}

// fill makes the image of a manifest, unless another process has done so meanwhile.
func (p *pull) fill(ctx context.Context, asked, digest string, m *manifest) (_ Image, err error) {
	directory := filepath.Join(p.images, slotOf(digest))
	slot, leave, err := p.enter(ctx, directory)
	if err != nil {
		return Image{}, err
	}
	defer leave(&err)
	from := p.origin(asked)
	before := load(directory)
	if before != nil && !before.isFor(from) {
		if err := p.prove(ctx, m); err != nil {
			return Image{}, err
		}
	}
	if image, err := p.again(ctx, slot, before, from); err != nil || image != nil {
		return given(image), err
	}
	made, err := p.make(ctx, directory, digest, m)
	if err != nil {
		return Image{}, err
	}
	if before != nil {
		made.Origins = before.Origins
	}
	made.add(from)
	if err := made.save(directory); err != nil {
		return Image{}, err
	}
	image, err := p.share(ctx, slot, made)
	if err == nil && image == nil {
		err = fmt.Errorf("%s has changed while it was made", rootName)
	}
	pulled := given(image)
	pulled.Pulled = time.Since(p.begun)
	return pulled, err
}

// prove downloads the blobs of an image that is in the cache. Its manifest is no proof that a repository has it: a tenant
// may have pushed the manifest of another tenant's image to their own registry, which has no layer of it.
func (p *pull) prove(ctx context.Context, m *manifest) (err error) {
	blobs := append([]v1.Descriptor{*m.Config}, m.Layers...)
	uses := make([]*blob, len(blobs))
	defer func() {
		for _, b := range uses {
			if b != nil {
				err = errors.Join(err, b.use.Release())
			}
		}
	}()
	return p.blobs(ctx, blobs, uses)
}

// again returns an image that is in a locked slot, and has one more origin now; nil if there is none, or it is damaged.
func (p *pull) again(ctx context.Context, slot *slots.Slot, r *record, from origin) (*Image, error) {
	if r == nil || !fits(r.Platform, p.cache.platform()) {
		return nil, nil
	}
	if r.add(from) {
		if err := r.save(slot.Directory); err != nil {
			return nil, err
		}
	}
	image, err := p.share(ctx, slot, r)
	if err == nil && image == nil {
		p.progress.say("its file system is damaged, pulling it again")
	}
	return image, err
}

// make downloads the blobs of an image and makes its file system. Blobs of an image that is malformed, or for which there
// is no room, are removed.
func (p *pull) make(ctx context.Context, directory, digest string, m *manifest) (_ *record, err error) {
	blobs := append([]v1.Descriptor{*m.Config}, m.Layers...)
	uses := make([]*blob, len(blobs))
	defer func() {
		for _, b := range uses {
			if b != nil {
				err = errors.Join(err, b.use.Release())
			}
		}
		var full *disk.FullError
		if errors.As(err, new(MalformedError)) || errors.As(err, &full) {
			err = errors.Join(err, p.forget(blobs))
		}
	}()
	if uses[0], err = p.blob(ctx, *m.Config); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(uses[0].file) // its size is that of the manifest
	if err != nil {
		return nil, err
	}
	config, err := parseConfiguration(text, len(m.Layers))
	if err != nil {
		return nil, err
	}
	if !fits(config.platform(), p.cache.platform()) {
		return nil, &PlatformError{Reference: p.ref.text, Wanted: p.cache.platform(), Available: []string{words(config.platform())}}
	}
	if err := p.blobs(ctx, m.Layers, uses[1:]); err != nil {
		return nil, err
	}
	layers := make([]Layer, len(m.Layers))
	for i := range layers {
		layers[i] = blobLayer(uses[i+1].file, config.RootFS.DiffIDs[i].String())
	}
	r := &record{Version: recordVersion, Digest: digest, Platform: config.platform(), Process: config.process()}
	return r, p.pack(ctx, directory, layers, r)
}

// blobs downloads the layers, several at a time. A layer that is there twice is downloaded once.
func (p *pull) blobs(ctx context.Context, layers []v1.Descriptor, into []*blob) error {
	total := int64(0)
	for _, d := range layers {
		total += d.Size
	}
	p.progress.begin(len(layers), total)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, d := range layers {
		group.Go(func() error {
			b, err := p.blob(ctx, d)
			into[i] = b
			return err
		})
	}
	return group.Wait()
}

// modeOfRoot lets a QEMU that is not root read the file system.
const modeOfRoot = 0o644

// pack makes the file system, which appears only when it is complete.
func (p *pull) pack(ctx context.Context, directory string, layers []Layer, r *record) error {
	p.progress.say("making its file system")
	file := filepath.Join(directory, rootName)
	begun := file + ".new"
	if err := remove(begun); err != nil { // of a process that was killed
		return err
	}
	err := Pack(ctx, layers, p.cache.limits(), begun)
	if err == nil {
		err = settle(begun)
	}
	if err == nil {
		r.SHA256, err = sumOf(ctx, begun)
	}
	if err == nil {
		err = slots.Rename(begun, file)
	}
	if err != nil {
		return errors.Join(disk.ExplainFull(begun, 0, err), remove(begun))
	}
	r.Stamp, err = slots.StampOf(file)
	return err
}

// settle makes sure that a file outlives a loss of power, and lets others read it.
func settle(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(modeOfRoot), file.Sync(), file.Close())
}
