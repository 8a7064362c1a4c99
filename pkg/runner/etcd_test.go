package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/disk"
)

// A disk is used where there is one, or may be made; data that is in none is never hidden by one.
func TestWhereEtcdsDataIs(t *testing.T) {
	const size = 1 << 30
	for name, test := range map[string]struct {
		files []string
		size  int64
		image bool
	}{
		"an empty directory":                    {size: size, image: true},
		"one that was locked before":            {files: []string{disk.LockName}, size: size, image: true},
		"an empty file system":                  {files: []string{"lost+found"}, size: size, image: true},
		"a disk":                                {files: []string{etcdImage, disk.LockName}, size: size, image: true},
		"a disk, when none would be made":       {files: []string{etcdImage}, image: true},
		"a disk beside other files":             {files: []string{etcdImage, "notes"}, size: size, image: true},
		"data of a member":                      {files: []string{"data"}, size: size},
		"an empty directory that is to be kept": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := Settings{Etcd: t.TempDir(), EtcdDisk: test.size}
			for _, file := range test.files {
				if err := os.WriteFile(filepath.Join(s.Etcd, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.etcd()
			if err != nil {
				t.Fatal(err)
			}
			want := etcdStore{}
			if test.image {
				want.disk = filepath.Join(s.Etcd, etcdImage)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(etcdStore{})); diff != "" {
				t.Errorf("store (-want +got):\n%s", diff)
			}
		})
	}
	if got, err := (Settings{EtcdDisk: size}).etcd(); err != nil || got != (etcdStore{}) {
		t.Errorf("a worker has %+v, %v", got, err)
	}
}
