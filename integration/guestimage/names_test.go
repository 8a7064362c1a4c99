// Package guestimage holds the builder of guest images (build.sh) and the check that image and boot data agree.
package guestimage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheImageCarriesTheContainerImagesThatBootDataNames holds two lists together that are made in different places: boot
// data names images by the versions of the catalogue, the guest image carries those of the binary that it was built from.
func TestTheImageCarriesTheContainerImagesThatBootDataNames(t *testing.T) {
	carried := strings.Fields(fileOfRoot(t, "usr/share/guest-images/names"))
	golden, err := os.ReadFile(filepath.Join("..", "..", "pkg", "cloudconfig", "testdata", "master.golden"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^(?:    image: |sandbox_image = )"?([^"\n]+)`).FindAllStringSubmatch(string(golden), -1)
	if len(named) != 5 {
		t.Fatalf("the boot data of a master names %d images, want pause and those of four static pods", len(named))
	}
	for _, match := range named {
		if !slices.Contains(carried, match[1]) {
			t.Errorf("the guest image lacks %s; it has %s", match[1], carried)
		}
	}
}

// fileOfRoot is the content of a file of the full image's root file system.
func fileOfRoot(t *testing.T, path string) string {
	t.Helper()
	const root = "../../.tools/guest/root.squashfs"
	if _, err := os.Stat(root); err != nil {
		t.Fatalf("the guest image is missing: %v\nrun `make tools` in the repository root", err)
	}
	content, err := exec.CommandContext(t.Context(), "unsquashfs", "-cat", root, path).Output()
	if err != nil {
		t.Fatalf("reading %s (by unsquashfs, of Debian's package squashfs-tools): %v", path, err)
	}
	return string(content)
}
