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

	"github.com/kvm-operator/kvm-operator/pkg/disk"
)

const (
	// Unchecked is the end of the name of a snapshot that nobody has checked yet. etcdctl adds its own while it writes.
	Unchecked = ".new"
	// litter is how long what an interrupted snapshot has left stays.
	litter = 24 * time.Hour
	// page is the unit of etcd's database in bytes; the checksum of a snapshot follows the last one
	// (https://etcd.io/docs/latest/op-guide/recovery, etcdctl/snapshot).
	page = 512
	// stamp is the time of a snapshot in its name, in UTC.
	stamp = "20060102T150405Z"
)

// ErrDamaged says that a file is no whole snapshot of etcd.
var ErrDamaged = errors.New("it is no whole snapshot of etcd")

// Check reads a snapshot and compares it with the checksum at its end. Its error is ErrDamaged when they differ.
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
		return fmt.Errorf("%s: %w: its checksum is another one", path, ErrDamaged)
	}
	return nil
}

// interruptible is a reader that ends with a context.
type interruptible struct {
	ctx    context.Context
	reader io.Reader
}

// Read reads.
func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.reader.Read(p)
}

// OfCluster says whether a file has the name of a snapshot of the cluster with an id, "<id>-<time>.db".
func OfCluster(file, id string) bool {
	_, ok := takenAt(file, id)
	return ok
}

// takenAt is the time in the name of a snapshot of a cluster, if it is one.
func takenAt(file, id string) (taken time.Time, ok bool) {
	text, named := strings.CutPrefix(file, id+"-")
	text, ended := strings.CutSuffix(text, ".db")
	taken, err := time.Parse(stamp, text)
	return taken, named && ended && err == nil
}

// Archive is a directory with snapshots, which may be those of several clusters.
type Archive struct {
	// Directory is where they are, and Cluster the id that the names of one cluster's begin with.
	Directory, Cluster string
	// Keep is how many of the cluster's stay.
	Keep int
}

// Add checks a new file of the directory, gives it the name of a snapshot that was taken at a time and removes those that are too many. It
// returns the name, which comes after those that there are: hosts take turns, and the clock of one may be behind that of another.
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

// next is the name of a snapshot that is taken now.
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

// prune removes the oldest snapshots, and what is left of ones that never ended. Nothing else in the directory is touched.
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
