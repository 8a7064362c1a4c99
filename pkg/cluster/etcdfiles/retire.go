package etcdfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// Retired is the directory with the data of a master that was removed from its cluster.
type Retired struct {
	// Directory contains the directories of masters.
	Directory string
	// Name is the name of the directory while a machine may use it, and As its name afterwards. Both are names without
	// a path, and As begins with "retired-".
	Name, As string
}

// Validate checks the names.
func (r Retired) Validate() error {
	if !local(r.Name) || strings.HasPrefix(r.Name, retired) {
		return fmt.Errorf("the name is %q and has to be that of a directory of a master, such as k8s-master-m0aaa", r.Name)
	}
	if !local(r.As) || !strings.HasPrefix(r.As, retired) || r.As == retired {
		return fmt.Errorf("the other name is %q and has to be one like retired-20261122T060000Z-k8s-master-m0aaa", r.As)
	}
	return nil
}

const retired = "retired-"

func local(name string) bool {
	return name == filepath.Base(name) && filepath.IsLocal(name) && name != "."
}

// Rename gives the directory its other name. It may be called again after it was interrupted anywhere, and does nothing
// if it is done or there is no such directory. It fails with a *disk.LockedError while a machine uses the data.
func (r Retired) Rename() (err error) {
	directories, err := os.OpenRoot(r.Directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, directories.Close()) }()
	if _, err := directories.Lstat(r.As); !errors.Is(err, fs.ErrNotExist) {
		return err // nil if it is done: what has the former name now is not what was to be renamed
	}
	if _, err := directories.Lstat(r.Name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	lock, err := disk.Acquire(filepath.Join(r.Directory, r.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := directories.Rename(r.Name, r.As); err != nil {
		return err
	}
	return disk.SyncDirectory(r.Directory)
}

// Remove removes the directory under its other name, if it exists. It follows no links in it.
func (r Retired) Remove() (err error) {
	directories, err := os.OpenRoot(r.Directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, directories.Close()) }()
	if err := directories.RemoveAll(r.As); err != nil {
		return err
	}
	return disk.SyncDirectory(r.Directory)
}
