package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// slot is the directory of an image in the cache, locked by this process.
type slot struct {
	*slots.Slot
	cache    *Cache
	client   *http.Client
	image    string
	manifest manifest
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
	patience := c.patience()
	locked, err := slots.Enter(ctx, directory, slots.Patience{Poll: patience.poll, Every: patience.every, Waiting: func(holder *disk.Holder) {
		c.tell("%s: waiting for %s, which gets the same image", image.Name, holder)
	}})
	if err != nil {
		return nil, err
	}
	return &slot{Slot: locked, cache: c, image: image.Name, manifest: loadManifest(directory)}, nil
}
