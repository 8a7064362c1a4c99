package ociimage

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// Open returns an image that is in the cache, by the digest of its manifest, or of the file that Add made it of. It asks no
// registry, and nothing else whether the image may be given away: it is for callers that have the digest from Get, or have
// computed it of such a file. The error is fs.ErrNotExist if the image is not in the cache, or was touched.
func (c *Cache) Open(digest string) (Image, error) {
	root, err := filepath.Abs(c.Directory)
	if err != nil {
		return Image{}, err
	}
	if digestPattern.MatchString(digest) {
		directory := filepath.Join(root, imagesName, slotOf(digest))
		if use := slots.Find(directory); use != nil {
			if r := load(directory); r != nil && r.untouched(directory) {
				use.Touch()
				return r.image(directory, use), nil
			}
			use.Drop()
		}
	}
	return Image{}, fmt.Errorf("opening the image %.100q in the cache %s: %w", digest, root, fs.ErrNotExist)
}
