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

	"github.com/kvm-operator/kvm-operator/pkg/disk"
)

// useName is the file that everybody who uses an image has a shared lock on. Its modification time is that of the last use.
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

// slotName is the name of an image's directory. It differs when anything that decides on the content of the files does.
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

// slotOf is the path of an image's directory.
func (c *Cache) slotOf(image Image) (string, error) {
	name, err := slotName(image, c.keys())
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(c.Directory)
	return filepath.Join(root, name), err
}

// enter locks the image's directory, waiting for whoever has it now.
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

// lockSlot locks a slot, or says that its directory does not exist. It does so by the manifest, which need not exist: the
// directory itself, should it be pruned at this moment, would be taken for an image that is still to be made.
func lockSlot(directory string) (*disk.Lock, error) {
	return disk.Acquire(filepath.Join(directory, manifestName))
}

// modeOfSlot lets a QEMU read that is not root.
const modeOfSlot = 0o755

// makeSlot makes a directory, or opens one that an earlier version kept to root.
func makeSlot(directory string) error {
	if err := os.MkdirAll(directory, modeOfSlot); err != nil {
		return err
	}
	info, err := os.Stat(directory)
	if err != nil || info.Mode().Perm()&modeOfSlot == modeOfSlot {
		return err
	}
	return os.Chmod(directory, modeOfSlot)
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
		case !errors.Is(err, fs.ErrNotExist): // which it is when it was pruned a moment ago
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-look.C:
		}
	}
}

// share marks the image as used. Nobody can be in the way: whoever wants to prune it needs the lock of the slot first.
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

// touch notes the time of the last use. When that fails, the image is pruned too early at worst, and downloaded again.
func touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}
