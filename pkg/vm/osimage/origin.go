package osimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
)

func originOf(url string, response *http.Response, offset int64) origin {
	o := origin{
		URL: url, ETag: response.Header.Get("ETag"), LastModified: response.Header.Get("Last-Modified"),
		Size: response.ContentLength,
	}
	if response.StatusCode == http.StatusPartialContent && o.Size >= 0 {
		o.Size += offset
	}
	return o
}

// validator returns the value for If-Range: a strong entity tag, or otherwise the date. With a weak tag two different
// files could count as the same.
func (o origin) validator() string {
	if o.ETag != "" && !strings.HasPrefix(o.ETag, "W/") {
		return o.ETag
	}
	return o.LastModified
}

// continues reports whether a partial response continues the known file at the offset. Some servers and proxies respond
// with a range of another file, or with another range, than requested.
func (o origin) continues(known origin, offset int64, response *http.Response) bool {
	var first, last, size int64
	if _, err := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size); err != nil {
		return false
	}
	return first == offset && last == size-1 && size == o.Size && (known.Size < 0 || size == known.Size) &&
		(o.validator() == "" || o.validator() == known.validator())
}

// fetchSignature returns the signature of a file, nil if it has none.
func (s *slot) fetchSignature(ctx context.Context, file File) (*signature, error) {
	url := file.signature()
	if url == "" {
		return nil, nil //nolint:nilnil // no signature is asked for
	}
	var text []byte
	var err error
	if path := localPath(url); path != "" {
		text, err = os.ReadFile(path)
	} else {
		text, err = s.fetch(ctx, url)
	}
	if err != nil {
		return nil, fmt.Errorf("its signature: %w", err)
	}
	return newSignature(file, s.cache.keys(), text)
}

// fetch downloads something small.
func (s *slot) fetch(ctx context.Context, url string) (text []byte, err error) {
	patience := s.cache.patience()
	tell := func(text string, arguments ...any) { s.cache.tell("%s: %s", s.image, fmt.Sprintf(text, arguments...)) }
	err = patience.retry(ctx, tell, func() (bool, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer time.AfterFunc(patience.stall, func() { cancel(retry.ErrStalled) }).Stop()
		text, err = s.fetchOnce(ctx, url)
		return false, err
	})
	return text, err
}

func (s *slot) fetchOnce(ctx context.Context, url string) ([]byte, error) {
	request, err := newRequest(ctx, url)
	if err != nil {
		return nil, retry.Final(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, requestError(ctx, show(url), err)
	}
	defer response.Body.Close() //nolint:errcheck // all that matters has been read
	if response.StatusCode != http.StatusOK {
		return nil, statusError(show(url), response.Status, response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSignature+1))
	switch {
	case err != nil:
		return nil, requestError(ctx, show(url), fmt.Errorf("the connection broke off: %w", err))
	case len(text) > maxSignature:
		return nil, retry.Final(errors.New(show(url) + " is too large for a signature"))
	}
	return text, nil
}
