package ociimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

const roomOfSmall = 2 << 20

// TestFullFileSystem: the error says what does not fit, and what was begun does not take the room.
func TestFullFileSystem(t *testing.T) {
	needs(t, packer)
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	for name, test := range map[string]struct {
		image image
		want  string
	}{
		"a blob does not fit":            {image{layers: []part{gzipped(archiveOf(t, "data="+noise(1, 5<<20)))}}, partName + " needs more, 0 images 0 blobs"},
		"a blob is larger than the disk": {image{layers: []part{raw(archiveOf(t, "data="+noise(1, 5<<20)))}}, partName + " needs more, 0 images 0 blobs"},
		"the file system does not fit":   {image{layers: []part{gzipped(archiveOf(t, "data="+noise(1, 5<<19)))}}, rootName + ".new needs something, 0 images 0 blobs"},
		"all of it fits":                 {image{layers: []part{gzipped(archiveOf(t, "data="+noise(1, 1<<20)))}}, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.push("web", test.image, "v1")
			c, _ := newCache(t, t.TempDir(), r)
			p := begin(t, order{Directory: c.Directory, Reference: r.host + "/web:v1", Insecure: c.Registries.Insecure, Small: true}, func(a *syscall.SysProcAttr) {
				a.Unshareflags = syscall.CLONE_NEWNS
			})
			if line := p.await(t, "result: "); !strings.HasSuffix(line, test.want) {
				t.Errorf("%s, want %s", line, test.want)
			}
		})
	}
}

// getSmall gets an image on a file system without room, and tells what came of it. Only this process sees it.
func getSmall(c *Cache, reference string) error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", c.Directory, "tmpfs", 0, fmt.Sprintf("size=%d", roomOfSmall))); err != nil {
		return err
	}
	_, err := c.Get(context.Background(), reference, nil)
	var full *disk.FullError
	if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) {
		fmt.Println("result:", err)
		return nil
	}
	needs := "something"
	if full.Needed > full.Free {
		needs = "more"
	}
	images, _ := os.ReadDir(filepath.Join(c.Directory, imagesName))
	blobs, _ := filepath.Glob(filepath.Join(c.Directory, blobsName, "*", "blob*"))
	fmt.Printf("result: %s needs %s, %d images %d blobs\n", filepath.Base(full.Path), needs, len(images), len(blobs))
	return nil
}
