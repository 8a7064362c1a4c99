package ociimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackedLayersAreOneFileSystem: a real mksquashfs makes a file system of layers, also of those with hard links whose
// names come before that of their file, for which version 4.5 and 4.6 crash otherwise. It is the same each time.
func TestPackedLayersAreOneFileSystem(t *testing.T) {
	needs(t, packer, "unsquashfs")
	layers := []Layer{layerOf(t, "usr/", "usr/bin/", "bin->usr/bin", "z=old", "usr/bin/b=program"), layerOf(t, "a=>usr/bin/b", "bin/sh=>usr/bin/b", ".wh.z", "pipe|fifo")}
	var sums [2][sha256.Size]byte
	file := ""
	for i := range sums {
		file = filepath.Join(t.TempDir(), "root.squashfs")
		if err := Pack(t.Context(), layers, DefaultLimits, file); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(content)
	}
	if sums[0] != sums[1] {
		t.Error("the same layers make different files")
	}
	output, err := exec.Command("unsquashfs", "-lln", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, want := range []string{"squashfs-root/a\n", "squashfs-root/bin -> usr/bin\n", "squashfs-root/usr/bin/b\n", "squashfs-root/usr/bin/sh\n", "squashfs-root/pipe\n", "drwxr-xr-x 0/0"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the file system has no %q:\n%s", want, output)
		}
	}
	if strings.Contains(string(output), "squashfs-root/z") {
		t.Errorf("a file that an upper layer removes is there:\n%s", output)
	}
	content, err := exec.Command("unsquashfs", "-cat", file, "usr/bin/sh").Output()
	if err != nil || string(content) != "program" {
		t.Errorf("a hard link has %q, %v", content, err)
	}
}

// TestNothingIsLeftOfAnImageThatIsRefused, nor of one whose layers end early, or that is called off.
func TestNothingIsLeftOfAnImageThatIsRefused(t *testing.T) {
	needs(t, packer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("the registry is gone")
	for name, test := range map[string]struct {
		ctx    context.Context
		layers []Layer
		want   error
	}{
		"malformed": {t.Context(), []Layer{layerOf(t, "a=>b")}, MalformedError{}},
		"cut": {t.Context(), []Layer{func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(nil), failing{broken})), nil
		}}, broken},
		"called off": {ctx, []Layer{layerOf(t, "a=1")}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "root.squashfs")
			err := Pack(test.ctx, test.layers, DefaultLimits, file)
			var refused MalformedError
			if is := errors.Is(err, test.want) || errors.As(test.want, new(MalformedError)) && errors.As(err, &refused); !is {
				t.Errorf("the error is %v", err)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file is left: %v", err)
			}
		})
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// needs fails a test without the programs that it needs, which short tests do without.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("this needs squashfs-tools")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v; on Debian: apt-get install squashfs-tools", err)
		}
	}
}
