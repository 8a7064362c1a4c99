package etcdfiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

const (
	// Unchecked is the suffix of the name of a snapshot that was not checked yet. etcdctl adds its own suffix while it
	// writes.
	Unchecked = ".new"
	// litter is how long leftovers of an interrupted snapshot are kept.
	litter = 24 * time.Hour
	// page is the unit of etcd's database in bytes; the checksum of a snapshot follows the last page
	// (https://etcd.io/docs/latest/op-guide/recovery, etcdctl/snapshot).
	page = 512
	// stamp is the format of the time in the name of a snapshot, in UTC.
	stamp = "20060102T150405Z"
)

// ErrDamaged says that a file is not a complete snapshot of etcd.
var ErrDamaged = errors.New("it is not a complete snapshot of etcd")

// Check reads a snapshot and compares it with the checksum at its end. It returns ErrDamaged if they differ.
func Check(ctx context.Context, path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if !info.Mode().IsRegular() || size <= 0 || size%page != 0 {
		return fmt.Errorf("%s: %w: it has %d bytes", path, ErrDamaged, info.Size())
	}
	sum, there := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, &interruptible{ctx, io.NewSectionReader(file, 0, size)}); err != nil {
		return err
	}
	if _, err := file.ReadAt(there, size); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), there) {
		return fmt.Errorf("%s: %w: its checksum does not match", path, ErrDamaged)
	}
	return nil
}

// interruptible is a reader that fails once its context ends.
type interruptible struct {
	ctx    context.Context
	reader io.Reader
}

// Read implements io.Reader.
func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.reader.Read(p)
}

// OfCluster reports whether a file has the name of a snapshot of the cluster with the given id, "<id>-<time>.db".
func OfCluster(file, id string) bool {
	_, ok := takenAt(file, id)
	return ok
}

// takenAt returns the time in the name of a snapshot of a cluster, if the file is one.
func takenAt(file, id string) (taken time.Time, ok bool) {
	text, named := strings.CutPrefix(file, id+"-")
	text, ended := strings.CutSuffix(text, ".db")
	taken, err := time.Parse(stamp, text)
	return taken, named && ended && err == nil
}

// Archive is a directory with snapshots, possibly of several clusters.
type Archive struct {
	// Directory is where the snapshots are, and Cluster the id with which the names of one cluster's snapshots begin.
	Directory, Cluster string
	// Keep is how many of the cluster's snapshots are kept.
	Keep int
}

// Add checks a new file in the directory, gives it the name of a snapshot that was taken at the given time, and removes
// surplus snapshots. It returns the name, which sorts after the existing ones: snapshots are taken on different hosts,
// and the clock of one may be behind that of another.
func (a Archive) Add(ctx context.Context, file string, now time.Time) (string, error) {
	path := filepath.Join(a.Directory, file)
	if err := Check(ctx, path); err != nil {
		return "", err
	}
	name, err := a.next(now)
	if err != nil {
		return "", err
	}
	if err := os.Rename(path, filepath.Join(a.Directory, name)); err != nil {
		return "", err
	}
	if err := disk.SyncDirectory(a.Directory); err != nil {
		return "", err
	}
	return name, a.prune(now)
}

// next returns the name of a snapshot that is taken now.
func (a Archive) next(now time.Time) (string, error) {
	entries, err := os.ReadDir(a.Directory)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if taken, ok := takenAt(e.Name(), a.Cluster); ok && now.Before(taken.Add(time.Second)) {
			now = taken.Add(time.Second)
		}
	}
	return a.Cluster + "-" + now.UTC().Format(stamp) + ".db", nil
}

// prune removes the oldest snapshots, and leftovers of interrupted ones. It touches nothing else in the directory.
func (a Archive) prune(now time.Time) error {
	entries, err := os.ReadDir(a.Directory)
	if err != nil {
		return err
	}
	partial := regexp.MustCompile(`^` + regexp.QuoteMeta(a.Cluster) + `-[a-z0-9.-]+` + regexp.QuoteMeta(Unchecked) + `(\.part)?$`)
	var names []string
	var errs []error
	for _, e := range entries {
		switch name := e.Name(); {
		case OfCluster(name, a.Cluster):
			names = append(names, name)
		case partial.MatchString(name):
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > litter {
				errs = append(errs, os.Remove(filepath.Join(a.Directory, name)))
			}
		}
	}
	slices.SortFunc(names, func(x, y string) int { return strings.Compare(y, x) }) // the newest first
	for _, name := range names[min(a.Keep, len(names)):] {
		errs = append(errs, os.Remove(filepath.Join(a.Directory, name)))
	}
	return errors.Join(errs...)
}
