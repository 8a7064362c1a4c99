package osimage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// Cache is a directory with images. Any number of processes, pods and goroutines may use it at the same time; each file
// is downloaded once.
type Cache struct {
	// Directory contains a directory for every image, named after the image and a hash of its sources and how it is
	// verified, so that images of different clusters never conflict. It is created if it is missing.
	Directory string
	// Local are the directories that file URLs may refer to, after following links; none means that file URLs are not
	// allowed.
	Local []string
	// Keys are trusted to sign images; nil means those of Flatcar.
	Keys *Keyring
	// Client downloads; nil means one that takes its proxy from the environment. It needs no timeout, because a
	// connection that is silent for 30 s is closed.
	Client *http.Client
	// MaxFile is how large a downloaded file may be, in bytes; 0 means unlimited.
	MaxFile int64
	// Progress is called with what Get is doing or waiting for, in sentences for people and at most every few seconds.
	// It is called by the goroutine that called Get. May be nil.
	Progress func(string)

	timing timing
}

// timing is how patient a cache is.
type timing struct {
	// stall is how long a server may be silent.
	stall time.Duration
	// attempts is how often in a row a download may fail without progress. The pause between them is backoff, doubled
	// each time up to maxBackoff.
	attempts            int
	backoff, maxBackoff time.Duration
	// every is the interval between two lines of progress, poll that between two checks of a lock.
	every, poll time.Duration
}

// defaultTiming gives a server about a minute to come back.
var defaultTiming = timing{
	stall: 30 * time.Second, attempts: 8, backoff: 500 * time.Millisecond, maxBackoff: 15 * time.Second,
	every: 5 * time.Second, poll: 200 * time.Millisecond,
}

// Local is an image in the cache, ready to boot. It is not pruned until Release, or the end of the process.
type Local struct {
	// Kernel, Initrd and RootFS are absolute paths; RootFS is empty if the image has none. The files must not be
	// changed.
	Kernel, Initrd, RootFS string

	use *slots.Use
}

// Release ends the use of the image. It may be called more than once.
func (l Local) Release() error { return l.use.Release() }

// Get makes sure that the image is in the cache, complete and verified, and returns where. A file that was verified
// before is read again only if the file system reports a change since; a damaged one is downloaded again. Get writes
// nothing if the image is there, so the cache may be read-only then.
//
// An interrupted download is resumed where it ended, in this or another process, as long as the server reports that the
// file is still the same. A file that does not match its checksum or signature is removed; if it was downloaded in
// parts, it is downloaded again as a whole. Errors: *MismatchError if it still does not match, *disk.FullError if
// there is no room for it, ErrTooLarge, syscall.EROFS if the cache is read-only and lacks the image, the cause of ctx
// if that ended.
func (c *Cache) Get(ctx context.Context, image Image) (Local, error) {
	if err := image.validate(); err != nil {
		return Local{}, err
	}
	if err := c.allow(image); err != nil {
		return Local{}, fmt.Errorf("getting image %s: %w", image.Name, err)
	}
	if local, ok := c.find(image); ok {
		return local, nil
	}
	local, err := c.get(ctx, image)
	if err != nil {
		return Local{}, fmt.Errorf("getting image %s: %w", image.Name, err)
	}
	return local, nil
}

func (c *Cache) get(ctx context.Context, image Image) (_ Local, err error) {
	client, done := c.client()
	defer done()
	s, err := c.enter(ctx, image)
	if err != nil {
		return Local{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.client = client
	paths := map[string]string{}
	for _, p := range image.parts() {
		if paths[p.name], err = s.provide(ctx, p); err != nil {
			return Local{}, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	use, err := s.Share()
	if err != nil {
		return Local{}, err
	}
	local := localAt(paths)
	local.use = use
	return local, nil
}

// localAt returns an image whose parts are at paths.
func localAt(paths map[string]string) Local {
	return Local{Kernel: paths["kernel"], Initrd: paths["initrd"], RootFS: paths["rootFS"]}
}

// client returns the client for one Get. The default client leaves no connection open, because the guest is about to
// take over the network.
func (c *Cache) client() (client *http.Client, done func()) {
	if c.Client != nil {
		return c.Client, func() {}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

func (c *Cache) patience() timing {
	if c.timing == (timing{}) {
		return defaultTiming
	}
	return c.timing
}

func (c *Cache) keys() *Keyring {
	if c.Keys == nil {
		return FlatcarKeys()
	}
	return c.Keys
}

func (c *Cache) tell(format string, arguments ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, arguments...))
	}
}

// provide returns the path of a verified file.
func (s *slot) provide(ctx context.Context, p part) (string, error) {
	path, owned := p.path(s.Directory)
	if owned {
		if err := openUp(path); err != nil {
			return "", err
		}
	}
	if s.isGood(ctx, p, path) {
		return path, nil
	}
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	sum, err := s.bring(ctx, p, path)
	if err != nil {
		return "", err
	}
	return path, s.record(p.name, path, sum)
}

// path returns where the file of a part is, and whether that is in the cache, which then owns it.
func (p part) path(directory string) (path string, owned bool) {
	if path := localPath(p.file.URL); path != "" {
		return path, false
	}
	return filepath.Join(directory, p.name), true
}

// modeOfFile lets a QEMU that is not root read the file: an operating system contains no secrets.
const modeOfFile = 0o644

// openUp makes a file world-readable that an earlier version restricted to root. This changes the file's metadata, so it
// is verified again.
func openUp(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() == modeOfFile {
		return nil //nolint:nilerr // it is checked, and reported, where it is verified
	}
	return os.Chmod(path, modeOfFile)
}

// bring verifies a local file or downloads one, and returns its checksum.
func (s *slot) bring(ctx context.Context, p part, path string) (string, error) {
	if localPath(p.file.URL) == "" {
		return s.download(ctx, p, path)
	}
	if _, err := slots.StampOf(path); err != nil {
		return "", err
	}
	signature, err := s.fetchSignature(ctx, p.file)
	if err != nil {
		return "", err
	}
	s.cache.tell("%s: verifying %s", s.image, path)
	return verify(ctx, path, p.file, s.cache.keys(), signature)
}

// isGood reports whether the file is verified according to the manifest.
func (s *slot) isGood(ctx context.Context, p part, path string) bool {
	known, ok := s.manifest.Files[p.name]
	if !ok {
		return false
	}
	now, err := slots.StampOf(path)
	switch {
	case err != nil:
	case now == known.Stamp:
		return true
	case now.Size == known.Size:
		s.cache.tell("%s: the timestamp of %s has changed, verifying it", s.image, p.name)
		if sum, err := verify(ctx, path, File{}, nil, nil); err == nil && sum == known.SHA256 {
			return s.record(p.name, path, sum) == nil
		}
	}
	if ctx.Err() == nil {
		s.cache.tell("%s: %s is damaged or gone", s.image, p.name)
	}
	return false
}

// record records that the file at path is verified.
func (s *slot) record(name, path, sum string) error {
	now, err := slots.StampOf(path)
	if err != nil {
		return err
	}
	s.manifest.Files[name] = entry{SHA256: sum, Stamp: now}
	return s.manifest.save(s.Directory)
}
