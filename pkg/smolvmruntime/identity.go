package smolvmruntime

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// identity is the certificate that the node API has at a time. Its own is self-signed and kept in the state directory, so
// that a restart changes nothing; or it is that of two files.
type identity struct {
	node, ip          string
	state             string
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *pair
	// next is to be published, and not served yet. nextSince is when it was first published.
	next      *pair
	nextSince time.Time
	// trouble is what was logged last.
	trouble string
}

// newIdentity finds or makes the certificate.
func newIdentity(s *Settings, log *slog.Logger, now time.Time) (*identity, error) {
	i := &identity{node: s.Node, ip: s.PodIP, state: s.State, certFile: s.CertFile, keyFile: s.KeyFile, log: log}
	if i.certFile != "" {
		given, err := readPair(i.certFile, i.keyFile)
		if err != nil {
			return nil, fmt.Errorf("getting the certificate of the node API: %w", err)
		}
		i.current = given
		return i, nil
	}
	if err := os.MkdirAll(i.state, 0o700); err != nil {
		// The agent runs without it, and reports that.
		log.Error("The state directory cannot be made", "error", err)
	}
	kept, err := i.load(currentFile)
	if err == nil && kept.suits(i.node, i.ip, now) {
		i.current = kept
		return i, i.resume(now)
	}
	if ignoreMissing(err) != nil {
		log.Warn("The certificate that was kept cannot be read, and another is made", "error", err)
	}
	i.current, err = i.make(currentFile, now)
	return i, errors.Join(err, ignoreMissing(os.Remove(i.path(nextFile))))
}

func (i *identity) path(name string) string { return filepath.Join(i.state, name) }

func (i *identity) load(name string) (*pair, error) { return readPair(i.path(name), i.path(name)) }

// resume continues an interrupted renewal. The agent that began it may have ended before it published the certificate.
func (i *identity) resume(now time.Time) error {
	next, err := i.load(nextFile)
	if err == nil && next.suits(i.node, i.ip, now) {
		i.next = next
		return nil
	}
	return ignoreMissing(os.Remove(i.path(nextFile)))
}

// make makes a certificate and keeps it. One that cannot be kept is as good until the next restart, and a full disk is no
// reason to let it end.
func (i *identity) make(name string, now time.Time) (*pair, error) {
	made, text, err := selfSigned(i.node, i.ip, now)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of the node API: %w", err)
	}
	if err := writeSecret(i.path(name), text); err != nil {
		i.log.Error("Cannot store the certificate of the node API", "error", err)
	}
	return made, nil
}

// Serve is for tls.Config.GetCertificate.
func (i *identity) Serve(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current.served, nil
}

// Published returns the certificates that clients are to trust, as PEM: the one that is served, and the next.
func (i *identity) Published() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	text := i.current.public()
	if i.next != nil {
		text = append(text, i.next.public()...)
	}
	return string(text)
}

// Ends returns when the certificate that is served ends.
func (i *identity) Ends() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current.leaf.NotAfter
}

// Refresh takes the step of a renewal that is due.
func (i *identity) Refresh(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var err error
	switch {
	case i.certFile != "":
		err = i.reload()
	case i.next != nil && i.isNextDue(now):
		err = i.promote()
	case i.next == nil && !now.Before(i.current.wornAt()):
		if i.next, err = i.make(nextFile, now); err == nil {
			i.nextSince = time.Time{}
			i.log.Info("Created the next certificate of the node API")
		}
	}
	if err == nil {
		i.trouble = ""
	} else if text := err.Error(); text != i.trouble {
		i.trouble = text
		i.log.Error("Cannot renew the certificate of the node API; the current one stays in use", "ends", i.current.leaf.NotAfter, "error", err)
	}
}

// isNextDue reports whether the next certificate is to be served: clients know it, or the one that is served ends.
func (i *identity) isNextDue(now time.Time) bool {
	known := !i.nextSince.IsZero() && now.Sub(i.nextSince) >= overlap
	return known || now.Add(overlap).After(i.current.leaf.NotAfter)
}

// Told notes that certificates have been published.
func (i *identity) Told(published string, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.next != nil && i.nextSince.IsZero() && strings.Contains(published, string(i.next.public())) {
		i.nextSince = now
	}
}

// reload reads the files again. The two are replaced one after the other, unless they are a Secret's.
func (i *identity) reload() error {
	given, err := readPair(i.certFile, i.keyFile)
	if err != nil {
		return err
	}
	if !bytes.Equal(given.leaf.Raw, i.current.leaf.Raw) {
		i.log.Info("The certificate of the node API was replaced", "ends", given.leaf.NotAfter)
	}
	// The rest of the chain may have changed.
	i.current = given
	return nil
}

// promote serves the next certificate.
func (i *identity) promote() error {
	i.current, i.next = i.next, nil
	i.log.Info("The next certificate of the node API is served", "ends", i.current.leaf.NotAfter)
	if err := os.Rename(i.path(nextFile), i.path(currentFile)); err != nil {
		return fmt.Errorf("keeping the certificate: %w", err)
	}
	return nil
}
