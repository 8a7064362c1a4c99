package runner

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
)

// ImageSettings are what the runner needs to get the guest image.
type ImageSettings struct {
	// Image is the operating system.
	Image osimage.Image
	// Images is the directory with the cache of images, shared by all machines of a host. It may be read-only if the
	// image is in it.
	Images string
	// ImageDirectories are the directories that file URLs of the image may refer to.
	ImageDirectories []string
	// MaxImageFile is how large each file of the image may be, in bytes; 0 means unlimited.
	MaxImageFile int64
	// SigningKeys is a file with the OpenPGP keys that sign images; if empty, those of Flatcar are used.
	SigningKeys string
}

const (
	// imageAge is how long an unused image is kept in case a new machine needs it.
	imageAge = 30 * 24 * time.Hour
	// imageFresh is how long an unused image is kept even if the host has no room left, because the machine that it was
	// downloaded for may be about to start.
	imageFresh = 15 * time.Minute
)

// fetch gets the image, and makes room for it if there is none.
func (s ImageSettings) fetch(ctx context.Context, log *slog.Logger, tell func(string)) (osimage.Local, error) {
	cache := &osimage.Cache{Directory: s.Images, Local: s.ImageDirectories, MaxFile: s.MaxImageFile, Progress: tell}
	if s.SigningKeys != "" {
		keys, err := osimage.KeysFromFile(s.SigningKeys)
		if err != nil {
			return osimage.Local{}, because(ReasonImageUnavailable, err)
		}
		cache.Keys = keys
	}
	prune := func(keep time.Duration) {
		if err := cache.Prune(ctx, keep); err != nil && ctx.Err() == nil {
			log.Error("Old images stay where they are", "error", err)
		}
	}
	local, err := cache.Get(ctx, s.Image)
	if errors.Is(err, syscall.ENOSPC) {
		tell("making room for the image " + s.Image.Name)
		prune(imageFresh)
		local, err = cache.Get(ctx, s.Image)
	}
	if err != nil {
		return local, because(imageReason(err), err)
	}
	prune(imageAge)
	return local, nil
}

func imageReason(err error) Reason {
	var mismatch *osimage.MismatchError
	switch {
	case errors.As(err, &mismatch):
		return ReasonImageMismatch
	case errors.Is(err, syscall.ENOSPC):
		return ReasonDiskFull
	}
	return ReasonImageUnavailable
}

// FetchImage gets the image for a machine that will see the cache read-only. The End is the zero value if the image is
// there.
func FetchImage(ctx context.Context, s ImageSettings, log *slog.Logger) End {
	local, err := s.fetch(ctx, log, func(text string) { log.Info(text) })
	switch {
	case ctx.Err() != nil:
		err = errors.Join(errors.New("getting the image "+s.Image.Name+": told to stop"), local.Release())
	case err == nil:
		err = local.Release()
	}
	if err != nil {
		return endOf(err)
	}
	log.Info("The image is there", "image", s.Image.Name)
	return End{}
}

// getImage finds the image that an init container got. Only the init container can record when the image was last used,
// because the cache is read-only for the machine, so the image may have been removed while the machine was down. Then
// the machine gets its own copy, because no init container runs when only the container is restarted.
func (r *Runner) getImage(ctx context.Context, p *prepared) (err error) {
	tell := func(text string) { r.enter(StatePreparing, text) }
	p.image, err = r.settings.fetch(ctx, r.log, tell)
	if errors.Is(err, syscall.EROFS) {
		tell("getting an image of its own: " + r.settings.Images + " is read-only and lacks it")
		own := r.settings.ImageSettings
		own.Images = r.settings.ownImages()
		p.image, err = own.fetch(ctx, r.log, tell)
	}
	if err != nil {
		return err
	}
	p.onClose(p.image.Release)
	return because(ReasonImageUnavailable, r.readable(p.image.Kernel, p.image.Initrd))
}
