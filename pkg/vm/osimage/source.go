package osimage

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"
)

// Source is an image, and where a machine gets it.
type Source struct {
	// Image is the operating system.
	Image Image
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
	// keepUnused is how long an unused image is kept in case a new machine needs it.
	keepUnused = 30 * 24 * time.Hour
	// keepFresh is how long an unused image is kept even if the host has no room left, because the machine that it was
	// downloaded for may be about to start.
	keepFresh = 15 * time.Minute
)

// Fetch gets the image, and makes room for it if there is none. It tells what it does in sentences for people.
func (s Source) Fetch(ctx context.Context, log *slog.Logger, tell func(string)) (Local, error) {
	cache := &Cache{Directory: s.Images, Local: s.ImageDirectories, MaxFile: s.MaxImageFile, Progress: tell}
	if s.SigningKeys != "" {
		keys, err := KeysFromFile(s.SigningKeys)
		if err != nil {
			return Local{}, err
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
		prune(keepFresh)
		local, err = cache.Get(ctx, s.Image)
	}
	if err == nil {
		prune(keepUnused)
	}
	return local, err
}
