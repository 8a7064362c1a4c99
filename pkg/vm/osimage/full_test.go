package osimage

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

const roomOfSmall = 2 << 20

func TestFullFileSystem(t *testing.T) {
	for name, c := range map[string]struct {
		fault  func(http.ResponseWriter, *http.Request, int) bool
		needed int64
		most   int64 // bytes served; the sockets hold some MiB
	}{
		"is seen before the first byte is written when the server says how much will come": {needed: kernelSize, most: kernelSize},
		"is seen when it is full otherwise": {
			fault: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write(noise(1, kernelSize))
				return true
			},
			most: kernelSize,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			image := m.image("own")
			m.change("/kernel", func(r *resource) { r.fault = c.fault })
			directory := mountSmall(t)
			cache, _ := newCache(t, directory)
			_, err := cache.Get(t.Context(), image)
			var full *disk.FullError
			if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("error %v, want a FullError", err)
			}
			if !strings.HasPrefix(full.Path, directory) || full.Needed != c.needed || full.Free > roomOfSmall {
				t.Errorf("%+v", full)
			}
			if left := leftovers(t, directory); len(left) > 0 {
				t.Errorf("room is taken by %v", left)
			}
			if requests := m.asked(); len(requests) != 1 {
				t.Errorf("requests: %v", requests)
			}
		})
	}
}

func TestImageFitsAfterRoomWasMade(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	content := noise(1, 1<<20)
	image.Kernel = File{URL: m.put("/kernel", content), SHA256: sumOf(content)}
	image.Initrd = File{URL: m.put("/initrd", content), SHA256: sumOf(content)}
	directory := mountSmall(t)
	ballast := filepath.Join(directory, "ballast")
	try(t, os.WriteFile(ballast, make([]byte, roomOfSmall-1<<20), 0o600))
	c, _ := newCache(t, directory)
	if _, err := c.Get(t.Context(), image); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v", err)
	}
	try(t, os.Remove(ballast))
	image.Initrd = image.Kernel
	image.Initrd.URL = "file://" + filepath.Join(directory, "initrd")
	try(t, os.WriteFile(filepath.Join(directory, "initrd"), content[:1<<19], 0o600))
	image.Initrd.SHA256 = sumOf(content[:1<<19])
	requireContent(t, get(t, c, image).Kernel, content)
}

// mountSmall mounts a tmpfs that only this test sees: its thread has its own mount namespace and ends with the test.
func mountSmall(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	runtime.LockOSThread()
	try(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	try(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	directory := t.TempDir()
	try(t, unix.Mount("tmpfs", directory, "tmpfs", 0, fmt.Sprintf("size=%d", roomOfSmall)))
	t.Cleanup(func() { try(t, unix.Unmount(directory, unix.MNT_DETACH)) })
	return directory
}
