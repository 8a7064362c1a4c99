package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// useName is the file on which every user of an image holds a shared lock. Its modification time is that of the last
// use.
const useName = "use"

// slot is the directory of an image in the cache, locked by this process.
type slot struct {
	cache     *Cache
	client    *http.Client
	image     string
	directory string
	lock      *disk.Lock
	manifest  manifest
}

// slotName returns the name of an image's directory. It differs if anything differs that determines the content of the
// files.
func slotName(image Image, keys *Keyring) (string, error) {
	origin := struct {
		Files map[string]File
		Keys  string
	}{Files: map[string]File{}}
	for _, p := range image.parts() {
		origin.Files[p.name] = p.file
		if p.file.signature() != "" {
			origin.Keys = keys.String()
		}
	}
	text, err := json.Marshal(origin)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return image.Name + "-" + hex.EncodeToString(sum[:8]), nil
}

// slotOf returns the path of an image's directory.
func (c *Cache) slotOf(image Image) (string, error) {
	name, err := slotName(image, c.keys())
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(c.Directory)
	return filepath.Join(root, name), err
}

// enter locks the image's directory. It waits for the current holder of the lock.
func (c *Cache) enter(ctx context.Context, image Image) (*slot, error) {
	directory, err := c.slotOf(image)
	if err != nil {
		return nil, err
	}
	s := &slot{cache: c, image: image.Name, directory: directory}
	if s.lock, err = s.acquire(ctx); err != nil {
		return nil, err
	}
	s.manifest = loadManifest(s.directory)
	return s, nil
}

// lockName is the name of a slot's lock file.
const lockName = "." + manifestName + disk.LockName

// lockSlot locks a slot. It fails if the slot's directory does not exist. It locks by the path of the manifest, which
// need not exist: if the directory itself were locked while it is pruned, it would count as an image that does not
// exist yet.
func lockSlot(directory string) (*disk.Lock, error) {
	return disk.Acquire(filepath.Join(directory, manifestName))
}

// modeOfSlot lets a QEMU that is not root read the directory.
const modeOfSlot = 0o755

// makeSlot creates a directory, or opens up one that an earlier version restricted to root. It succeeds, too, if the
// directory is pruned meanwhile: locking it shows that.
func makeSlot(directory string) error {
	if err := os.MkdirAll(directory, modeOfSlot); err != nil {
		return err
	}
	info, err := os.Stat(directory)
	if err == nil && info.Mode().Perm()&modeOfSlot != modeOfSlot {
		err = os.Chmod(directory, modeOfSlot)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *slot) acquire(ctx context.Context) (*disk.Lock, error) {
	patience := s.cache.patience()
	look := time.NewTicker(patience.poll)
	defer look.Stop()
	var told time.Time
	for {
		if err := makeSlot(s.directory); err != nil {
			return nil, disk.ExplainFull(s.cache.Directory, 0, err)
		}
		lock, err := lockSlot(s.directory)
		var locked *disk.LockedError
		switch {
		case err == nil:
			return lock, nil
		case errors.As(err, &locked):
			if time.Since(told) >= patience.every {
				s.cache.tell("%s: waiting for %s, which gets the same image", s.image, locked.Holder)
				told = time.Now()
			}
		case !errors.Is(err, fs.ErrNotExist): // which is the error if it was just pruned
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-look.C:
		}
	}
}

// share marks the image as used. It never has to wait, because pruning first needs the lock of the slot.
func (s *slot) share() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(s.directory, useName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, disk.ExplainFull(s.directory, 0, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("marking it as used: %w", err), file.Close())
	}
	touch(file.Name())
	return file, nil
}

// touch records the time of the last use. If that fails, at worst the image is pruned too early, and downloaded again.
func touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}
