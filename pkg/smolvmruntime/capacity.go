package smolvmruntime

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
	// maxFiles bounds how many files of the state directory are counted. It has some for each machine and image.
	maxFiles = 200_000
)

// allocatable returns what machines may have of a node: what the settings say, else what Kubernetes may give to pods. The
// storage is what is there, or less if the settings say so.
func allocatable(s *Settings, node *corev1.Node, storageBytes int64) v1alpha1.Allocatable {
	a := v1alpha1.Allocatable{CPUs: s.CapacityCPUs, MemoryMiB: s.CapacityMemoryMiB, StorageGiB: storageBytes / gibibyte}
	if node != nil && a.CPUs == 0 {
		a.CPUs = int32(min(node.Status.Allocatable.Cpu().Value(), math.MaxInt32)) //nolint:gosec // it is bounded
	}
	if node != nil && a.MemoryMiB == 0 {
		a.MemoryMiB = node.Status.Allocatable.Memory().Value() / mebibyte
	}
	if s.CapacityStorageGiB > 0 {
		a.StorageGiB = min(a.StorageGiB, s.CapacityStorageGiB)
	}
	return a
}

// storage returns how many bytes the machines and images of a directory have and could get. Disks are sparse, so what they
// occupy counts and not their sizes.
func storage(directory string) (int64, error) {
	var room unix.Statfs_t
	if err := unix.Statfs(directory, &room); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: directory, Err: err}
	}
	occupied, err := occupied(directory)
	free := int64(room.Bavail) * room.Bsize //nolint:gosec // no disk has as many bytes
	return free + occupied, err
}

var errTooMany = errors.New("there are too many files")

// occupied returns how many bytes the files below a directory occupy on its file system. It follows no link. Files may
// vanish meanwhile: smolvm makes and removes them.
func occupied(directory string) (int64, error) {
	var top unix.Stat_t
	if err := unix.Lstat(directory, &top); err != nil {
		return 0, &os.PathError{Op: "lstat", Path: directory, Err: err}
	}
	var sum int64
	files := 0
	seen := map[uint64]bool{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if files++; files > maxFiles {
			return errTooMany
		}
		var found unix.Stat_t
		if err := unix.Lstat(path, &found); err != nil {
			return ignoreMissing(err)
		}
		switch {
		case found.Dev != top.Dev && entry.IsDir():
			return filepath.SkipDir
		case found.Dev != top.Dev, found.Nlink > 1 && !entry.IsDir() && seen[found.Ino]:
			return nil
		case found.Nlink > 1 && !entry.IsDir():
			seen[found.Ino] = true
		}
		sum += found.Blocks * 512 // stat(2): whatever the block size of the file system
		return nil
	})
	if errors.Is(err, errTooMany) {
		// What is left out makes the node look smaller.
		err = nil
	}
	return sum, err
}
