package vmrunner

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// store writes a file either completely or not at all, even if the host loses power.
func store(path string, content []byte) error {
	whole := path + ".new"
	file, err := ownfile.Create(whole, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(whole))
	}
	if err := os.Rename(whole, path); err != nil {
		return err
	}
	return disk.SyncDirectory(filepath.Dir(path))
}
