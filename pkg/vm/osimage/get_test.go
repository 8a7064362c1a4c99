package osimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestImageIsDownloadedOnce(t *testing.T) {
	m := newMirror(t)
	image := m.image("own-1.0")
	root := noise(3, 1<<20)
	image.RootFS = &File{URL: m.put("/root", root), SHA256: sumOf(root)}
	c, _ := newCache(t, filepath.Join(t.TempDir(), "made/by/the/cache"))
	local := get(t, c, image)
	requireContent(t, local.Kernel, noise(1, kernelSize))
	requireContent(t, local.Initrd, noise(2, initrdSize))
	requireContent(t, local.RootFS, root)
	if diff := cmp.Diff([]string{"/kernel", "/initrd", "/root"}, m.asked()); diff != "" {
		t.Errorf("requests: %s", diff)
	}
	again := get(t, c, image)
	if again.Kernel != local.Kernel || !filepath.IsAbs(local.Kernel) {
		t.Errorf("%+v, then %+v", local, again)
	}
	if requests := m.asked(); len(requests) > 0 {
		t.Errorf("asked again for %v", requests)
	}
	if left := leftovers(t, c.Directory); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	m := newMirror(t)
	file := filepath.Join(t.TempDir(), "file")
	try(t, os.WriteFile(file, nil, 0o600))
	c := &Cache{Directory: file} // with the patience of the real one
	if _, err := c.Get(t.Context(), m.image("own")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("error %v", err)
	}
	if err := c.Prune(t.Context(), 0); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("error %v", err)
	}
}

func TestImagesWithTheSameNameDoNotGetIntoEachOthersWay(t *testing.T) {
	m := newMirror(t)
	one := m.image("own")
	other := one
	content := noise(9, 1000)
	other.Kernel = File{URL: m.put("/other", content), SHA256: sumOf(content)}
	c, _ := newCache(t, t.TempDir())
	first, second := get(t, c, one), get(t, c, other)
	requireContent(t, first.Kernel, noise(1, kernelSize))
	requireContent(t, second.Kernel, content)
}

func TestProgress(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	c, lines := newCache(t, t.TempDir())
	get(t, c, image)
	want := []string{
		"own: kernel: downloading 3.0 MiB", "own: kernel: verifying", "own: initrd: downloading 5.0 MiB", "own: initrd: verifying",
	}
	if diff := cmp.Diff(want, lines.lines); diff != "" {
		t.Error(diff)
	}
}

func TestProgressTellsPercentageSizeAndRate(t *testing.T) {
	var lines []string
	p := progress{tell: func(text string, arguments ...any) { lines = append(lines, fmt.Sprintf(text, arguments...)) }, what: "own: kernel", every: time.Minute}
	p.begin(0, 400<<20)
	p.at(50<<20, 400<<20)
	p.last = p.last.Add(-100 * time.Second)
	p.at(100<<20, 400<<20)
	p.at(150<<20, 400<<20)
	p.last = p.last.Add(-100 * time.Second)
	p.at(200<<20, -1)
	want := []string{
		"own: kernel: downloading 400.0 MiB",
		"own: kernel: 25 %, 100.0 of 400.0 MiB, 1.0 MiB/s",
		"own: kernel: 200.0 MiB, 1.0 MiB/s",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}
