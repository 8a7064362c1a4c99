package ociimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
)

const (
	bufferSize = 256 << 10
	// progressUnit is how many new bytes make a failed attempt count as progress.
	progressUnit = 1 << 20
)

// download is a blob that comes from a registry. An interrupted download is resumed: in this process, or in another one
// before. What is in the part is not trusted before its digest is right.
type download struct {
	source   *source
	progress *progress
	want     v1.Descriptor
	part     string
	// whole says that all of it came with one response.
	whole bool
	// counted is how many bytes the progress knows of; reached is the furthest offset of all attempts.
	counted, reached int64
}

// run downloads until the part is complete and has the right digest. One that was resumed and is wrong is downloaded
// again as a whole: after a loss of power there may be holes in it.
func (d *download) run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			d.progress.add(-d.counted)
		}
	}()
	for again := false; ; again = true {
		err := d.source.attempts.Do(ctx, d.progress.say, func() (bool, error) {
			before := d.reached
			err := d.attempt(ctx)
			return d.reached >= before+progressUnit, err
		})
		if err != nil {
			return err
		}
		right, err := d.verify(ctx)
		if right || err != nil {
			return err
		}
		if err := d.discard(); err != nil {
			return err
		}
		if wrong := d.failed(fmt.Errorf("%w: %s", errMismatch, d.want.Digest)); d.whole || again {
			return wrong
		}
		d.progress.say("the digest of a layer that was pulled in parts does not match, pulling it again")
	}
}

// attempt asks for what is missing and stores what comes.
func (d *download) attempt(ctx context.Context) error {
	offset, err := d.left()
	if err != nil || offset == d.want.Size && offset > 0 {
		return retry.Final(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := &watchdog{stall: d.source.stall}
	header := http.Header{"Accept-Encoding": {"identity"}}
	if offset > 0 {
		// Some registries do not understand a range without an end.
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, d.want.Size-1))
	}
	if _, err := d.source.handshake(ctx); err != nil {
		return err
	}
	dog.timer = time.AfterFunc(dog.stall, func() { cancel(retry.ErrStalled) })
	defer dog.timer.Stop()
	response, err := d.source.ask(ctx, http.MethodGet, "blobs", d.want.Digest.String(), header)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // all that matters has been read
	switch {
	case response.StatusCode == http.StatusOK:
		offset = 0
		if response.ContentLength >= 0 && response.ContentLength != d.want.Size {
			return retry.Final(d.failed(fmt.Errorf("%w: %d instead of %d bytes", errMismatch, response.ContentLength, d.want.Size)))
		}
	case response.StatusCode == http.StatusRequestedRangeNotSatisfiable && offset > 0,
		response.StatusCode == http.StatusPartialContent && !d.continues(offset, response):
		return errors.Join(d.failed(errRange), retry.Final(d.discard()))
	case response.StatusCode != http.StatusPartialContent:
		return d.source.refusal(response)
	}
	return d.store(ctx, response.Body, offset, dog)
}

func (d *download) failed(err error) error { return d.source.failed(0, err) }

// continues reports whether a partial response is the one that was asked for (RFC 9110, section 14.4).
func (d *download) continues(offset int64, response *http.Response) bool {
	var first, last, size int64
	_, err := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size)
	return err == nil && offset > 0 && first == offset && last == size-1 && size == d.want.Size
}

// left returns how much is there; a part that is too long is discarded.
func (d *download) left() (int64, error) {
	info, err := os.Lstat(d.part)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if info.Size() > d.want.Size {
		return 0, d.discard()
	}
	return info.Size(), nil
}

// store writes what comes, from the offset on.
func (d *download) store(ctx context.Context, body io.Reader, offset int64, dog *watchdog) (err error) {
	file, err := d.open(offset)
	if err != nil {
		return retry.Final(d.full(offset, err))
	}
	defer func() { err = errors.Join(err, retry.Final(file.Close())) }()
	d.whole = offset == 0
	d.count(offset)
	for buffer := make([]byte, bufferSize); ; {
		n, came := body.Read(buffer)
		dog.saw(n)
		if offset+int64(n) > d.want.Size {
			return retry.Final(errors.Join(d.failed(errEndless), d.discard()))
		}
		if _, err := file.Write(buffer[:n]); err != nil {
			return retry.Final(d.full(offset, err))
		}
		offset += int64(n)
		d.reached = max(d.reached, offset)
		d.count(offset)
		if came != nil {
			return d.ended(ctx, file, offset, came)
		}
	}
}

// ended returns what the end of a response means, which came after a number of bytes.
func (d *download) ended(ctx context.Context, file *os.File, offset int64, came error) error {
	if errors.Is(came, io.EOF) && offset == d.want.Size {
		return retry.Final(d.full(offset, file.Sync()))
	}
	if cause := context.Cause(ctx); cause != nil {
		came = cause
	}
	return d.source.broken(ctx, fmt.Errorf("%w after %d of %d bytes: %w", errCut, offset, d.want.Size, came))
}

// count tells the progress where the download is.
func (d *download) count(offset int64) {
	d.progress.add(offset - d.counted)
	d.counted = offset
}

// open prepares the part to be written from the offset on.
func (d *download) open(offset int64) (*os.File, error) {
	if rest := d.want.Size - offset; rest > 0 {
		if free, err := disk.Free(filepath.Dir(d.part)); err == nil && free < rest {
			return nil, &disk.FullError{Path: d.part, Needed: rest, Free: free}
		}
	}
	file, err := os.OpenFile(d.part, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(offset); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// full removes a part that does not fit, to free the space of the node.
func (d *download) full(offset int64, err error) error {
	err = explainFull(d.part, d.want.Size-offset, err)
	var full *disk.FullError
	if errors.As(err, &full) {
		return errors.Join(err, d.discard())
	}
	return err
}

func (d *download) discard() error {
	d.count(0)
	return remove(d.part)
}

// verify reports whether the part has the right digest.
func (d *download) verify(ctx context.Context) (bool, error) {
	sum, err := sumOf(ctx, d.part)
	return sum == d.want.Digest.Hex, err
}

// sumOf returns the SHA-256 of a file in hexadecimal digits.
func sumOf(ctx context.Context, path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	sum := sha256.New()
	for {
		switch _, err := io.CopyN(sum, file, 16*drained); {
		case errors.Is(err, io.EOF):
			return hex.EncodeToString(sum.Sum(nil)), nil
		case err != nil:
			return "", err
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		}
	}
}
