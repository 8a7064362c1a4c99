package vm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
)

// Image is a guest image in files.
type Image struct {
	// Name is its name in the cache.
	Name string
	// Kernel, Initrd and RootFS are paths; RootFS may be empty.
	Kernel, Initrd, RootFS string
	// Arguments are added to the kernel's command line.
	Arguments []string
}

// With returns the image with further kernel arguments.
func (i Image) With(arguments ...string) Image {
	i.Arguments = append(append([]string(nil), i.Arguments...), arguments...)
	return i
}

func (i Image) json(t testing.TB) string {
	t.Helper()
	description := osimage.Image{
		Name: i.Name, Kernel: osimage.File{URL: "file://" + i.Kernel}, Initrd: osimage.File{URL: "file://" + i.Initrd},
		KernelArguments: i.Arguments,
	}
	if i.RootFS != "" {
		description.RootFS = &osimage.File{URL: "file://" + i.RootFS}
	}
	text, err := json.Marshal(description)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Tiny returns the tiny guest of integration/images/guestimage, whose README describes its output and its commands.
func Tiny(t testing.TB) Image {
	t.Helper()
	return Image{Name: "tiny", Kernel: built(t, "guest/vmlinuz"), Initrd: built(t, "guest/tiny.cpio.gz"), Arguments: []string{"quiet", "nokaslr"}}
}

// Full returns the guest image with systemd and Kubernetes. Its console logs in without a password.
func Full(t testing.TB) Image {
	t.Helper()
	return Image{
		Name: "full", Kernel: built(t, "guest/vmlinuz"), Initrd: built(t, "guest/initrd.img"), RootFS: built(t, "guest/root.squashfs"),
		Arguments: []string{"quiet", "nokaslr", "guest.autologin"},
	}
}

// built returns the path of a file that `make tools` builds.
func built(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(root(), ".tools", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run `make tools` in %s", err, root())
	}
	return path
}

// root returns the root of the checkout.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Pack packs an Ignition config as the operator does.
func Pack(t testing.TB, config string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(config)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

var program struct {
	sync.Once
	path string
	err  error
}

// Runner returns the path of the runner's program, which is built once for each test binary. Main removes it.
func Runner(t testing.TB) string {
	t.Helper()
	program.Do(func() {
		directory, err := os.MkdirTemp("", "runner") //nolint:usetesting // it serves all tests of the package
		if err != nil {
			program.err = err
			return
		}
		program.path = filepath.Join(directory, "kvm-operator")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program.path, "./runner")
		build.Dir = root()
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("building the runner: %w\n%s", err, output)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.path
}

// Main runs the tests of a package and removes what Runner built.
func Main(m *testing.M) {
	code := m.Run()
	if program.path != "" {
		_ = os.RemoveAll(filepath.Dir(program.path))
	}
	os.Exit(code)
}

// lockThread keeps the goroutine on its thread until the result is called.
func lockThread() func() {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
