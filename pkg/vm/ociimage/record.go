package ociimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

const (
	recordName    = "image.json"
	rootName      = "root.squashfs"
	recordVersion = 1
	// maxOrigins bounds how many origins of an image are kept; older ones are asked for again.
	maxOrigins = 256
	// maxRecord bounds a record, in bytes: the configuration of an image and its origins.
	maxRecord = 2*maxManifest + maxOrigins*1024
)

// record is what the cache knows of an image that is complete. An image without one does not count.
type record struct {
	Version  int     `json:"version"`
	Digest   string  `json:"digest"`
	Platform string  `json:"platform"`
	Process  Process `json:"process"`
	// SHA256 is that of the file system, in hexadecimal digits, and Stamp what the file was like then.
	SHA256 string      `json:"sha256"`
	Stamp  slots.Stamp `json:"stamp"`
	// Origins are where the image came from.
	Origins []origin `json:"origins"`
}

// origin is a name under which a registry had an image.
type origin struct {
	Repository string `json:"repository"`
	// Asked is the digest that was asked for: that of the image, or of the index that has it.
	Asked string `json:"asked"`
	// Secret stands for the credentials without which the image may not be given away; empty if those are the node's.
	Secret string `json:"secret,omitempty"`
}

// secretOf returns what stands for credentials of one pull. It cannot be used for another image.
func secretOf(asked string, auth *authn.AuthConfig) string {
	if auth == nil {
		return ""
	}
	text := fmt.Sprintf("%s %q %q %q %q %q", asked, auth.Username, auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken)
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// serves reports whether an image is what was asked for. allowed says that its registry has just allowed to have it.
func (r *record) serves(wanted origin, platform string, allowed bool) bool {
	return fits(r.Platform, platform) && slices.ContainsFunc(r.Origins, func(o origin) bool {
		return o.Repository == wanted.Repository && o.Asked == wanted.Asked && (allowed || o.Secret == "" || o.Secret == wanted.Secret)
	})
}

// isFor reports whether an image may be given away under a name whose registry has just served its manifest: it was pulled
// from there before, or is not one that needs credentials of a tenant.
func (r *record) isFor(wanted origin) bool {
	return slices.ContainsFunc(r.Origins, func(o origin) bool { return o.Secret == "" || o.Repository == wanted.Repository })
}

// add adds an origin, and reports whether it is new.
func (r *record) add(o origin) bool {
	if slices.Contains(r.Origins, o) {
		return false
	}
	r.Origins = append(r.Origins, o)
	r.Origins = r.Origins[max(0, len(r.Origins)-maxOrigins):]
	return true
}

// load returns the record of an image's directory, nil if there is none. A damaged one counts as missing.
func load(directory string) *record {
	text, err := ownfile.Read(filepath.Join(directory, recordName), maxRecord)
	var r record
	if err != nil || json.Unmarshal(text, &r) != nil || r.Version != recordVersion || slotOf(r.Digest) != filepath.Base(directory) {
		return nil
	}
	return &r
}

func (r *record) save(directory string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return slots.Replace(filepath.Join(directory, recordName), append(text, '\n'))
}

// untouched reports whether the file system was not changed since it was verified.
func (r *record) untouched(directory string) bool {
	now, err := slots.StampOf(filepath.Join(directory, rootName))
	return err == nil && now == r.Stamp
}

// verify reports whether the file system of a locked slot is right. One that was only touched is read, and recorded as it
// is now.
func (r *record) verify(ctx context.Context, directory string) (bool, error) {
	if r.untouched(directory) {
		return true, nil
	}
	file := filepath.Join(directory, rootName)
	now, err := slots.StampOf(file)
	if err != nil || now.Size != r.Stamp.Size {
		return false, nil //nolint:nilerr // what is not there is made
	}
	sum, err := sumOf(ctx, file)
	if err != nil || sum != r.SHA256 {
		return false, err
	}
	r.Stamp = now
	return true, r.save(directory)
}

// image returns the image of a directory.
func (r *record) image(directory string, use *slots.Use) Image {
	return Image{Digest: r.Digest, Platform: r.Platform, Root: filepath.Join(directory, rootName), Size: r.Stamp.Size, Process: r.Process, use: use}
}

// known returns the directories whose images serve what is asked for.
func (c *Cache) known(directory string, wanted origin, allowed bool) (found []string, err error) {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		path := filepath.Join(directory, e.Name())
		if !slotPattern.MatchString(e.Name()) {
			continue
		}
		if r := load(path); r != nil && r.serves(wanted, c.platform(), allowed) {
			found = append(found, path)
		}
	}
	return found, err
}
