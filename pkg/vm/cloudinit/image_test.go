package cloudinit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat32"
	"github.com/google/go-cmp/cmp"
)

func TestImageHasTheFilesOfTheDataSource(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), (MaxData-64)/16)
	for name, test := range map[string]struct {
		data Data
		want map[string]string
		size int64
	}{
		"nothing": {Data{}, map[string]string{"meta-data": "", "user-data": ""}, 4 << 20},
		"what a machine needs": {
			Data{MetaData: []byte("instance-id: v1\n"), UserData: []byte("#cloud-config\n")},
			map[string]string{"meta-data": "instance-id: v1\n", "user-data": "#cloud-config\n"}, 4 << 20,
		},
		"everything": {
			Data{MetaData: []byte("m"), UserData: []byte("u"), NetworkConfig: []byte("n"), VendorData: []byte("v")},
			map[string]string{"meta-data": "m", "user-data": "u", "network-config": "n", "vendor-data": "v"}, 4 << 20,
		},
		"as much as is allowed": {
			Data{MetaData: make([]byte, 32), UserData: large, VendorData: make([]byte, 32)},
			map[string]string{"meta-data": string(make([]byte, 32)), "user-data": string(large), "vendor-data": string(make([]byte, 32))}, 5 << 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			image := newFile(t)
			if err := Write(image, test.data); err != nil {
				t.Fatal(err)
			}
			info, err := image.Stat()
			if err != nil || info.Size() != test.size {
				t.Errorf("the image has %d bytes, want %d (%v)", info.Size(), test.size, err)
			}
			if diff := cmp.Diff(test.want, readBack(t, image, test.size)); diff != "" {
				t.Errorf("the files differ (-want +got):\n%s", diff)
			}
			// The label is in the boot sector and is the first entry of the root directory; blkid(8) reads both.
			content, err := os.ReadFile(image.Name())
			if err != nil || string(content[71:82]) != "CIDATA     " || bytes.Count(content, []byte("CIDATA     ")) < 2 {
				t.Errorf("the boot sector's label is %q (%v)", content[71:82], err)
			}
		})
	}
}

func TestTooMuchDataIsRefused(t *testing.T) {
	image := newFile(t)
	err := Write(image, Data{UserData: make([]byte, MaxData), VendorData: []byte("v")})
	if err == nil || !strings.Contains(err.Error(), "4194305 bytes and may have 4194304") {
		t.Errorf("the error is %v", err)
	}
	if info, err := image.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("something was written: %v, %v", info, err)
	}
}

func newFile(t *testing.T) *os.File {
	t.Helper()
	image, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { image.Close() })
	return image
}

// readBack returns the files of an image by name.
func readBack(t *testing.T, image *os.File, size int64) map[string]string {
	t.Helper()
	fs, err := fat32.Read(file.New(image, true), size, 0, 512)
	if err != nil {
		t.Fatal(err)
	}
	if label := strings.TrimSpace(fs.Label()); label != Label {
		t.Errorf("the label is %q", label)
	}
	found, err := fs.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range found {
		content, err := fs.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(content)
	}
	return files
}

func TestGuestFindsDisksByTheirNames(t *testing.T) {
	const long = "a-disk-with-a-long-name"
	got, err := DiskLinks("system-disk", long)
	if err != nil {
		t.Fatal(err)
	}
	want := `SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{serial}=="system-disk", SYMLINK+="system-disk"
SUBSYSTEM=="block", ENV{DEVTYPE}=="partition", ATTRS{serial}=="system-disk", SYMLINK+="system-disk-part%n"
SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{serial}=="a-disk-wi-d09ad85cce", SYMLINK+="a-disk-with-a-long-name"
SUBSYSTEM=="block", ENV{DEVTYPE}=="partition", ATTRS{serial}=="a-disk-wi-d09ad85cce", SYMLINK+="a-disk-with-a-long-name-part%n"
`
	_, rest, _ := strings.Cut(string(got), "<<'END'\n")
	rules, commands, _ := strings.Cut(rest, "END\n")
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(string(got), "#cloud-boothook\n#!/bin/sh\n") || !slices.Contains(strings.Split(commands, "\n"), "udevadm control --reload") {
		t.Errorf("it is no boot hook that loads the rules:\n%s", got)
	}
	if got, err := DiskLinks(); got != nil || err != nil {
		t.Errorf("without disks there is %q, %v", got, err)
	}
}

func TestNameThatWouldBreakARuleIsRefused(t *testing.T) {
	for _, name := range []string{"", `a", RUN+="/bin/x`, "a\nEND\nreboot", "../sda", "%k"} {
		if _, err := DiskLinks(name); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%q gives %v", name, err)
		}
	}
}
