package osimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

const (
	manifestName    = "manifest.json"
	manifestVersion = 1
)

// manifest lists the verified files of an image in the cache. Files that are not listed do not count.
type manifest struct {
	Version int              `json:"version"`
	Files   map[string]entry `json:"files"`
}

// entry is a verified file and its stamp at that time.
type entry struct {
	SHA256 string `json:"sha256"`
	stamp
}

// stamp changes whenever a file does: every write and every replacement changes one of its parts. Programs cannot set
// the change time.
type stamp struct {
	Size     int64  `json:"size"`
	Inode    uint64 `json:"inode"`
	Modified int64  `json:"modified"` // nanoseconds
	Changed  int64  `json:"changed"`  // nanoseconds
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return stamp{}, fmt.Errorf("%s is no regular file", path)
	}
	return stamp{Size: info.Size(), Inode: status.Ino, Modified: status.Mtim.Nano(), Changed: status.Ctim.Nano()}, nil
}

func parseManifest(text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return manifest{}, err
	}
	if m.Version != manifestVersion {
		return manifest{}, fmt.Errorf("version %d is not known", m.Version)
	}
	for name, e := range m.Files {
		if !sumPattern.MatchString(e.SHA256) || e.Size < 0 {
			return manifest{}, fmt.Errorf("the entry of %s is damaged", name)
		}
	}
	return m, nil
}

// loadManifest reads the manifest of an image's directory. A damaged one counts as missing.
func loadManifest(directory string) manifest {
	text, err := os.ReadFile(filepath.Join(directory, manifestName))
	if err == nil {
		if m, err := parseManifest(text); err == nil && m.Files != nil {
			return m
		}
	}
	return manifest{Version: manifestVersion, Files: map[string]entry{}}
}

// save replaces the manifest atomically.
func (m manifest) save(directory string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(directory, manifestName), append(text, '\n'))
}

// replaceFile writes a file that appears either complete or not at all, even if the power fails.
func replaceFile(path string, content []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return disk.ExplainFull(filepath.Dir(path), 0, err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return disk.ExplainFull(path, int64(len(content)), err)
	}
	return rename(path+".new", path)
}

// rename replaces path by a file that has been synced.
func rename(from, path string) error {
	if err := os.Rename(from, path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
