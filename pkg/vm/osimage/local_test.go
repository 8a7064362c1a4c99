package osimage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFileURLsLeadWhereTheyMay: the author of an image must not be able to read arbitrary files of the container.
func TestFileURLsLeadWhereTheyMay(t *testing.T) {
	directory := t.TempDir()
	at := func(name string) string { return filepath.Join(directory, name) }
	err := errors.Join(
		os.MkdirAll(at("own/deep"), 0o755), os.Mkdir(at("others"), 0o755), os.WriteFile(at("own/deep/kernel"), []byte("kernel"), 0o644),
		os.WriteFile(at("others/kernel"), []byte("of others"), 0o644), os.Symlink(at("others/kernel"), at("own/link")),
		os.Symlink(at("own/deep/kernel"), at("own/inner")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		local   []string
		kernel  string
		allowed bool
	}{
		"no directory":                   {nil, "own/deep/kernel", false},
		"below one":                      {[]string{at("own")}, "own/deep/kernel", true},
		"below the second":               {[]string{at("none"), at("own/deep/")}, "own/deep/kernel", true},
		"beside it":                      {[]string{at("own")}, "others/kernel", false},
		"a name that begins like it":     {[]string{at("oth")}, "others/kernel", false},
		"a link that leads out of it":    {[]string{at("own")}, "own/link", false},
		"a link that stays in it":        {[]string{at("own")}, "own/inner", true},
		"everywhere":                     {[]string{"/"}, "others/kernel", true},
		"through the process's own root": {[]string{at("own")}, "own/../others/kernel", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cache{Directory: at("cache"), Local: test.local}
			image := Image{Name: "x", Kernel: File{URL: "file://" + at(test.kernel)}, Initrd: File{URL: "file://" + at(test.kernel)}}
			if strings.Contains(test.kernel, "..") {
				image.Kernel.URL = "file://" + directory + "/" + test.kernel
			}
			local, err := c.Get(t.Context(), image)
			if (err == nil) != test.allowed {
				t.Errorf("error %v, want none: %t", err, test.allowed)
			}
			if err == nil {
				_ = local.Release()
			} else if !strings.Contains(err.Error(), "service.machine.imagedirectories") && !strings.Contains(test.kernel, "..") {
				t.Errorf("the error does not name the setting: %v", err)
			}
		})
	}
	signed := Image{Name: "x", Kernel: File{URL: "https://example.org/kernel", SignatureURL: "file://" + at("others/kernel")}, Initrd: File{URL: "https://example.org/initrd"}}
	if err := (&Cache{Local: []string{at("own")}}).allow(signed); err == nil {
		t.Error("a signature may be anywhere")
	}
}
