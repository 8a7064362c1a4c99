package osimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

const (
	// progressUnit is how many new bytes make a failed attempt count as progress.
	progressUnit = 1 << 20
	// maxSignature is larger than any detached signature, in bytes.
	maxSignature = 64 << 10
	bufferSize   = 256 << 10
)

// download downloads and verifies a file, stores it at path and returns its checksum.
func (s *slot) download(ctx context.Context, p part, path string) (string, error) {
	for again := false; ; again = true {
		signature, err := s.fetchSignature(ctx, p.file)
		if err != nil {
			return "", err
		}
		d := s.newDownload(p, path)
		if err := d.run(ctx); err != nil {
			return "", err
		}
		d.tell("verifying")
		sum, err := verify(ctx, d.path, p.file, s.cache.keys(), signature)
		if err == nil {
			return sum, d.finish(path)
		}
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) {
			return "", err
		}
		if err := d.discard(); err != nil {
			return "", err
		}
		// Pieces may be of two different files.
		if d.whole || again {
			return "", err
		}
		d.tell("%v; it was downloaded in parts, downloading it again", mismatch)
	}
}

// download is a file that is being downloaded into the cache.
type download struct {
	file   File
	client *http.Client
	timing timing
	tell   func(string, ...any)
	// path is the file in which it is collected. What the server reported about it is stored beside it.
	path string
	// whole says that all of it came with one response.
	whole bool
	// most is how large the file may be, in bytes; 0 for any size.
	most int64
	// reached is the furthest offset of all attempts.
	reached int64

	progress progress
}

// origin is what the server reported about a file. It can be used to ask whether the file is still the same.
type origin struct {
	URL          string `json:"url"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// Size is in bytes, below 0 if the server did not report it.
	Size int64 `json:"size"`
}

func (s *slot) newDownload(p part, path string) *download {
	what := s.image + ": " + p.name
	tell := func(text string, arguments ...any) { s.cache.tell("%s: %s", what, fmt.Sprintf(text, arguments...)) }
	timing := s.cache.patience()
	return &download{
		file: p.file, client: s.clientFor(p.file), timing: timing, tell: tell, path: path + ".part", most: s.cache.MaxFile,
		progress: progress{tell: s.cache.tell, what: what, every: timing.every},
	}
}

// clientFor rejects redirects to http if only https authenticates the file.
func (s *slot) clientFor(file File) *http.Client {
	if file.verifiable() {
		return s.client
	}
	strict := *s.client
	strict.CheckRedirect = func(request *http.Request, via []*http.Request) error {
		if request.URL.Scheme != "https" {
			return errInsecure
		}
		if s.client.CheckRedirect != nil {
			return s.client.CheckRedirect(request, via)
		}
		if len(via) >= 10 { // as net/http does by default
			return errCircle
		}
		return nil
	}
	return &strict
}

// run downloads until the file is complete.
func (d *download) run(ctx context.Context) error {
	// After a power failure there may be holes in what was left, and only a checksum or a signature would reveal them.
	if !d.file.verifiable() {
		if err := d.discard(); err != nil {
			return err
		}
	}
	return d.timing.retry(ctx, d.tell, func() (bool, error) {
		before := d.reached
		err := d.attempt(ctx)
		return d.reached >= before+progressUnit, err
	})
}

// attempt requests what is missing and stores what arrives.
func (d *download) attempt(ctx context.Context) error {
	offset, known := d.left()
	if offset > 0 && offset == known.Size {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(d.timing.stall, func() { cancel(retry.ErrStalled) })
	defer silence.Stop()
	response, err := d.ask(ctx, offset, known)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // all that matters has been read
	now := originOf(d.file.URL, response, offset)
	switch {
	case response.StatusCode == http.StatusOK:
		offset = 0
	case response.StatusCode == http.StatusRequestedRangeNotSatisfiable && offset > 0,
		response.StatusCode == http.StatusPartialContent && !now.continues(known, offset, response):
		return errors.Join(errChanged, retry.Final(d.discard()))
	case response.StatusCode != http.StatusPartialContent || offset == 0:
		return statusError(show(d.file.URL), response.Status, response.StatusCode)
	}
	return d.store(ctx, response.Body, offset, now, silence)
}

// ask sends the request, for a range if a part exists (RFC 9110, sections 13.1.5 and 14.2).
func (d *download) ask(ctx context.Context, offset int64, known origin) (*http.Response, error) {
	request, err := newRequest(ctx, d.file.URL)
	if err != nil {
		return nil, retry.Final(err)
	}
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		request.Header.Set("If-Range", known.validator())
	}
	response, err := d.client.Do(request)
	if err != nil {
		return nil, requestError(ctx, show(d.file.URL), err)
	}
	return response, nil
}

func newRequest(ctx context.Context, url string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "kvm-operator")
	// The files are compressed, and what is stored has to be what was signed.
	request.Header.Set("Accept-Encoding", "identity")
	return request, nil
}

// store writes what arrives, starting at the offset. The time that the disk takes does not count as silence of the
// server.
func (d *download) store(ctx context.Context, body io.Reader, offset int64, now origin, silence *time.Timer) (err error) {
	if err := d.bound(now.Size); err != nil {
		return retry.Final(err)
	}
	file, err := d.open(offset, now)
	if err != nil {
		return retry.Final(d.full(offset, now, err))
	}
	defer func() { err = errors.Join(err, retry.Final(file.Close())) }()
	d.whole = offset == 0
	d.progress.begin(offset, now.Size)
	buffer := make([]byte, bufferSize)
	for {
		silence.Reset(d.timing.stall)
		n, err := body.Read(buffer)
		silence.Stop()
		if n > 0 {
			if err := d.bound(offset + int64(n)); err != nil {
				return retry.Final(err)
			}
			if _, err := file.Write(buffer[:n]); err != nil {
				return retry.Final(d.full(offset, now, err))
			}
			offset += int64(n)
			d.reached = max(d.reached, offset)
			d.progress.at(offset, now.Size)
		}
		if errors.Is(err, io.EOF) {
			return retry.Final(d.full(offset, now, file.Sync()))
		}
		if err != nil {
			return requestError(ctx, show(d.file.URL), fmt.Errorf("the connection broke off: %w", err))
		}
	}
}

// open prepares the part to be written from the offset on. What the server reported is stored before the first byte,
// and removed before an older part is overwritten, so that the two always belong to the same file.
func (d *download) open(offset int64, now origin) (*os.File, error) {
	if offset == 0 {
		if err := d.discard(); err != nil {
			return nil, err
		}
		if err := d.remember(now); err != nil {
			return nil, err
		}
	}
	if free, err := disk.Free(filepath.Dir(d.path)); err == nil && free < now.Size-offset {
		return nil, &disk.FullError{Path: d.path, Needed: now.Size - offset, Free: free}
	}
	file, err := os.OpenFile(d.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// full removes a part that does not fit, to free the host's disk space.
func (d *download) full(offset int64, now origin, err error) error {
	err = disk.ExplainFull(d.path, max(0, now.Size-offset), err)
	var full *disk.FullError
	if errors.As(err, &full) {
		return errors.Join(full, d.discard())
	}
	return err
}

// ErrTooLarge says that a file is larger than Cache.MaxFile.
var ErrTooLarge = errors.New("it is larger than a file of an image may be")

// bound removes a file that is too large, to free the host's disk space.
func (d *download) bound(size int64) error {
	if d.most == 0 || size <= d.most {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w: %d bytes are allowed (service.machine.maximagefile)", show(d.file.URL), ErrTooLarge, d.most), d.discard())
}

func (d *download) originPath() string { return d.path + ".json" }

func (d *download) remember(now origin) error {
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return slots.Replace(d.originPath(), text)
}

// left returns how much of the file is there and where it came from; 0 if it is not known whether the rest would match.
func (d *download) left() (int64, origin) {
	var known origin
	text, err := os.ReadFile(d.originPath())
	if err != nil || json.Unmarshal(text, &known) != nil || known.URL != d.file.URL {
		return 0, origin{}
	}
	info, err := os.Stat(d.path)
	if err != nil || known.validator() == "" && info.Size() != known.Size || known.Size >= 0 && info.Size() > known.Size {
		return 0, origin{}
	}
	return info.Size(), known
}

func (d *download) discard() error {
	for _, path := range []string{d.originPath(), d.path} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// finish gives the complete and verified file its name.
func (d *download) finish(path string) error {
	if err := os.Chmod(d.path, modeOfFile); err != nil {
		return err
	}
	if err := slots.Rename(d.path, path); err != nil {
		return err
	}
	return d.discard()
}
