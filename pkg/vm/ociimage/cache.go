package ociimage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// Cache is a directory with the images of all machines of a node. Any number of processes and goroutines may use it at
// the same time; each blob is downloaded once.
//
// Its images are in images/sha256-…, by the digest of the image's manifest: root.squashfs, and what is known of it in
// image.json. Blobs are in blobs/sha256-… and blobs/repository-…, while they are downloaded and for some time after that,
// because images share layers. Only the node's administrator may write to it.
//
// What was pulled with credentials of one pull is given to another one only if its registry sends it to that one too, or
// has allowed it: blobs are shared within their repository, and an image that another repository says it has is
// downloaded from there first, although it is in the cache.
type Cache struct {
	// Directory is created if it is missing.
	Directory string
	// Limits are those of each image; zero for DefaultLimits.
	Limits Limits
	// Registries says how registries are asked.
	Registries Registries
	// Platform is that of the machines, such as linux/arm64 or linux/arm/v7; empty for Linux on the architecture of this
	// process.
	Platform string
	// Progress is called with what Get is doing or waiting for, in sentences for people and at most every few seconds.
	// It is called by several goroutines, but never twice at a time. May be nil.
	Progress func(string)

	timing timing
}

// timing is how patient a cache is.
type timing struct {
	// stall is how long a registry may be silent.
	stall time.Duration
	// attempts is how often in a row a download may fail without progress. The pause between them is backoff, doubled
	// each time up to maxBackoff.
	attempts            int
	backoff, maxBackoff time.Duration
	// every is the interval between two lines of progress, poll that between two checks of a lock.
	every, poll time.Duration
}

// defaultTiming gives a registry about a minute to come back.
var defaultTiming = timing{
	stall: 30 * time.Second, attempts: 8, backoff: 500 * time.Millisecond, maxBackoff: 15 * time.Second,
	every: 5 * time.Second, poll: 200 * time.Millisecond,
}

const (
	imagesName = "images"
	blobsName  = "blobs"
	// attemptsOfMirror is how often a mirror may fail, because another registry is asked then.
	attemptsOfMirror = 2
	// parallel is how many blobs of an image are downloaded at a time.
	parallel = 3
	// keepBlobs is how long a blob, or a part of one, that is not used is kept at most.
	keepBlobs = time.Hour
)

func (t timing) policy() retry.Policy {
	return retry.Policy{Attempts: t.attempts, Backoff: t.backoff, MaxBackoff: t.maxBackoff}
}

func (t timing) mirror() retry.Policy {
	return retry.Policy{Attempts: min(t.attempts, attemptsOfMirror), Backoff: t.backoff, MaxBackoff: t.maxBackoff}
}

func (c *Cache) patience() timing {
	if c.timing == (timing{}) {
		return defaultTiming
	}
	return c.timing
}

func (c *Cache) limits() Limits {
	if c.Limits == (Limits{}) {
		return DefaultLimits
	}
	return c.Limits
}

func (c *Cache) platform() string {
	if c.Platform == "" {
		return "linux/" + runtime.GOARCH
	}
	return c.Platform
}

// Image is an image in the cache. It is not pruned until Release, or the end of the process.
type Image struct {
	// Reference is what was asked for, Digest that of the image's manifest: sha256: and 64 hexadecimal digits.
	Reference, Digest string
	// Platform is that of the image, such as linux/amd64.
	Platform string
	// Root is the absolute path of the image's file system, a squashfs that must not be changed. Size is its size in
	// bytes.
	Root string
	Size int64
	// Process is what the image runs.
	Process Process
	// Pulled is how long Get took to pull the image; 0 if it was in the cache.
	Pulled time.Duration

	use *slots.Use
}

// Release ends the use of the image. It may be called more than once.
func (i Image) Release() error { return i.use.Release() }

// Get makes sure that an image is in the cache, and returns it. The reference is that of a tag or of a digest. A tag is
// resolved by its registry each time, with one request for a manifest; nothing else is asked for if the image is there.
// A digest that is in the cache, from the same repository, is not asked for at all. auth is for this pull, and for the
// image's own registry only; nil for the keychain. What was pulled with it is found by digest only with it, or after the
// registry has allowed it once.
//
// The error is a *ReferenceError, *PullError, *PlatformError, MalformedError, *disk.FullError, or the cause of ctx if
// that ended. In none of these cases anything is left of an image that was not there before; blobs may be left, so that
// the next Get resumes with them.
func (c *Cache) Get(ctx context.Context, reference string, auth *authn.AuthConfig) (Image, error) {
	ref, err := parseReference(reference)
	if err != nil {
		return Image{}, err
	}
	p, err := c.newPull(ref, auth)
	if err != nil {
		return Image{}, fmt.Errorf("getting image %s: %w", reference, err)
	}
	defer p.guard.close()
	image, err := p.get(ctx)
	if err != nil {
		return Image{}, explain(ctx, reference, err)
	}
	return image, nil
}

// explain returns an error of the kind that a caller can tell.
func explain(ctx context.Context, reference string, err error) error {
	var full *disk.FullError
	var failed failures
	var platform *PlatformError
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &full), errors.As(err, new(MalformedError)):
	case errors.As(err, &platform):
		return platform
	case errors.As(err, &failed):
		return &PullError{Reference: reference, Status: failed.status(), Err: failed}
	}
	return fmt.Errorf("getting image %s: %w", reference, err)
}

// The names of slots: of images, and of blobs, some of which belong to a repository.
var (
	slotPattern = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)
	blobPattern = regexp.MustCompile(`^(sha256|repository)-[0-9a-f]{64}$`)
)

// Prune removes the images that have not been used for as long as keep and that are neither in use nor being made, and
// blobs that have not been used for an hour, or for as long as keep if that is shorter. It never waits, and touches only
// entries that belong to images. Call it after Get, and with a short time if Get says that the disk is full.
func (c *Cache) Prune(ctx context.Context, keep time.Duration) error {
	told := func(kind string, keep time.Duration) func(string) {
		return func(name string) {
			if c.Progress != nil {
				c.Progress(fmt.Sprintf("pruned the %s %s, unused for %s", kind, name, keep))
			}
		}
	}
	short := min(keep, keepBlobs)
	err := errors.Join(
		slots.Prune(ctx, filepath.Join(c.Directory, imagesName), slotPattern, keep, told("image", keep)),
		slots.Prune(ctx, filepath.Join(c.Directory, blobsName), blobPattern, short, told("blob", short)),
	)
	if err != nil {
		return fmt.Errorf("pruning images: %w", err)
	}
	return nil
}

// Process is what an image runs.
type Process = ociprocess.Process
