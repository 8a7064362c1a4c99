package etcdfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// A disk is used if there is one or it may be created; data that is not on a disk is never hidden by one.
func TestWhereEtcdsDataIs(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		make  bool
		image bool
	}{
		"an empty directory":                    {make: true, image: true},
		"one that was locked before":            {files: []string{disk.LockName}, make: true, image: true},
		"an empty file system":                  {files: []string{"lost+found"}, make: true, image: true},
		"a disk":                                {files: []string{Image, disk.LockName}, make: true, image: true},
		"a disk, when none would be made":       {files: []string{Image}, image: true},
		"a disk beside other files":             {files: []string{Image, "notes"}, make: true, image: true},
		"a disk that is being replaced":         {files: []string{Image + before + "x", Image + placing}, image: true},
		"a first disk that is being placed":     {files: []string{Image + placing}, make: true, image: true},
		"data of a member":                      {files: []string{"data"}, make: true},
		"an empty directory that is to be kept": {},
	} {
		t.Run(name, func(t *testing.T) {
			volume := t.TempDir()
			for _, file := range test.files {
				if err := os.WriteFile(filepath.Join(volume, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Find(volume, test.make)
			if err != nil {
				t.Fatal(err)
			}
			want := Store{}
			if test.image {
				want.Disk = filepath.Join(volume, Image)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("store (-want +got):\n%s", diff)
			}
		})
	}
	if got, err := Find("", true); err != nil || got != (Store{}) {
		t.Errorf("a worker has %+v, %v", got, err)
	}
}
