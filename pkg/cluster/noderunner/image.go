package noderunner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
)

// fetch gets an image. The error has its reason.
func fetch(ctx context.Context, source osimage.Source, log *slog.Logger, tell func(string)) (osimage.Local, error) {
	local, err := source.Fetch(ctx, log, tell)
	var mismatch *osimage.MismatchError
	switch {
	case errors.As(err, &mismatch):
		return local, keeper.Because(keeper.ReasonImageMismatch, err)
	case errors.Is(err, syscall.ENOSPC):
		return local, keeper.Because(keeper.ReasonDiskFull, err)
	}
	return local, keeper.Because(keeper.ReasonImageUnavailable, err)
}

// FetchImage gets the image for a machine that will see the cache read-only. The End is the zero value if the image is
// there.
func FetchImage(ctx context.Context, source osimage.Source, log *slog.Logger) keeper.End {
	local, err := fetch(ctx, source, log, func(text string) { log.Info(text) })
	switch {
	case ctx.Err() != nil:
		err = errors.Join(errors.New("getting the image "+source.Image.Name+": the runner was asked to stop"), local.Release())
	case err == nil:
		err = local.Release()
	}
	if err != nil {
		return keeper.EndOf(err)
	}
	log.Info("The image is there", "image", source.Image.Name)
	return keeper.End{}
}

// getImage finds the image that an init container got. Only the init container can record when the image was last used,
// because the cache is read-only for the machine, so the image may have been removed while the machine was down. Then
// the machine gets its own copy, because no init container runs when only the container is restarted.
func (p *preparation) getImage(ctx context.Context) (err error) {
	p.image, err = fetch(ctx, p.settings.Source, p.log, p.Tell)
	if errors.Is(err, syscall.EROFS) {
		p.Tell("getting its own image: " + p.settings.Images + " is read-only and lacks it")
		own := p.settings.Source
		own.Images = p.settings.ownImages()
		p.image, err = fetch(ctx, own, p.log, p.Tell)
	}
	if err != nil {
		return err
	}
	p.OnClose(p.image.Release)
	return keeper.Because(keeper.ReasonImageUnavailable, p.Readable(p.image.Kernel, p.image.Initrd))
}

// openImage opens the image's root file system, so that QEMU gets the file that was verified.
func (p *preparation) openImage(context.Context) error {
	if p.image.RootFS == "" {
		return nil
	}
	file, err := os.Open(p.image.RootFS)
	if err != nil {
		return keeper.Because(keeper.ReasonImageUnavailable, err)
	}
	p.descriptors[serialImage] = p.Give(file)
	return nil
}
