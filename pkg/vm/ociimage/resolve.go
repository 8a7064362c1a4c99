package ociimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
)

// answer is a manifest, or only its digest if text is nil.
type answer struct {
	digest, mediaType string
	text              []byte
}

// resolve asks which manifest a tag refers to. It asks for the digest first: registries count pulls by requests for the
// manifest itself.
func (p *pull) resolve(ctx context.Context) (found answer, err error) {
	err = p.each(ctx, func(s *source) error {
		return s.attempts.Do(ctx, p.progress.say, func() (bool, error) {
			found, err = s.head(ctx, p.ref.name.Identifier())
			return false, err
		})
	})
	return found, err
}

// manifest returns the manifest of the image for the platform, and its digest. If what is asked for is an index, that is
// another one.
func (p *pull) manifest(ctx context.Context, asked string, sent answer) (*manifest, string, error) {
	if sent.text == nil {
		var err error
		if sent, err = p.fetch(ctx, asked); err != nil {
			return nil, "", err
		}
	}
	m, err := parseManifest(sent.mediaType, sent.text, p.cache.limits())
	if err != nil || !m.isIndex() {
		return m, asked, err
	}
	chosen, err := m.choose(p.ref.text, p.cache.platform())
	if err != nil {
		return nil, "", err
	}
	digest := chosen.Digest.String()
	if sent, err = p.fetch(ctx, digest); err != nil {
		return nil, "", err
	}
	if m, err = parseManifest(sent.mediaType, sent.text, p.cache.limits()); err == nil && m.isIndex() {
		err = malformed("what its index has for %s is an index", p.cache.platform())
	}
	return m, digest, err
}

// fetch returns the manifest with a digest.
func (p *pull) fetch(ctx context.Context, digest string) (found answer, err error) {
	err = p.each(ctx, func(s *source) error {
		return s.attempts.Do(ctx, p.progress.say, func() (bool, error) {
			found, err = s.get(ctx, digest)
			if err == nil && found.digest != digest {
				err = retry.Final(s.failed(0, fmt.Errorf("%w: %s", errMismatch, digest)))
			}
			return false, err
		})
	})
	return found, err
}

func acceptedHeader() http.Header {
	types := make([]string, len(accepted))
	for i, t := range accepted {
		types[i] = string(t)
	}
	return http.Header{"Accept": {strings.Join(types, ", ")}}
}

// head returns the digest of a tag. If the registry does not say it, or refuses, it is asked for the manifest, because
// only then it reports the reason.
func (s *source) head(ctx context.Context, tag string) (answer, error) {
	response, err := s.ask(ctx, http.MethodHead, "manifests", tag, acceptedHeader())
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close() //nolint:errcheck // it has none
	digest := response.Header.Get("Docker-Content-Digest")
	switch {
	case response.StatusCode == http.StatusOK && digestPattern.MatchString(digest):
		return answer{digest: digest}, nil
	case retry.Passing(response.StatusCode):
		return answer{}, s.refusal(response)
	}
	return s.get(ctx, tag)
}

// get returns the manifest of a tag or digest.
func (s *source) get(ctx context.Context, identifier string) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if _, err := s.handshake(ctx); err != nil {
		return answer{}, err
	}
	defer time.AfterFunc(s.stall, func() { cancel(retry.ErrStalled) }).Stop()
	response, err := s.ask(ctx, http.MethodGet, "manifests", identifier, acceptedHeader())
	if err != nil {
		return answer{}, err
	}
	if response.StatusCode != http.StatusOK {
		return answer{}, s.refusal(response)
	}
	defer response.Body.Close() //nolint:errcheck // all that matters has been read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxManifest+1))
	switch {
	case err != nil:
		return answer{}, s.broken(ctx, fmt.Errorf("%w within the manifest: %w", errCut, err))
	case len(text) > maxManifest:
		return answer{}, retry.Final(malformed("its manifest has more than %d bytes", maxManifest))
	}
	sum := sha256.Sum256(text)
	return answer{digest: "sha256:" + hex.EncodeToString(sum[:]), mediaType: response.Header.Get("Content-Type"), text: text}, nil
}

func (s *source) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// leave gives a registry up, unless all that is wrong is that it does not have what was asked for.
func (s *source) leave(err error) {
	var failed *failure
	if errors.As(err, &failed) && failed.status == http.StatusNotFound {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}
