package microvm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// Record is what is stored of a machine: what it is, and what is wanted of it. What it does is asked of its keeper.
type Record struct {
	// Version is that of this format.
	Version int    `json:"version"`
	Name    string `json:"name"`
	Spec    Spec   `json:"spec"`
	// sizes are those of the disks, at least: a disk may already have grown further.
	sizes
	Owner *api.Owner `json:"owner,omitempty"`
	// SpecHash is the client's digest of what it asked for; empty if it gave none.
	SpecHash string `json:"specHash,omitempty"`
	// Created is when the machine was created.
	Created time.Time `json:"created"`
	// Wanted says that the machine is to run. It is stored before anything is started, and cleared before anything is
	// stopped.
	Wanted bool `json:"wanted"`
	// Started is when the machine was started the last time; zero if it never was.
	Started time.Time `json:"started,omitzero"`
	// Digest is the image's at its first start, or the artifact's at the creation. It stays, because what the machine has
	// written is on top of that image.
	Digest string `json:"digest,omitempty"`
	// Packed is what the artifact says; zero for a machine that has none.
	Packed packed `json:"packed,omitzero"`
	// Retries counts how often the machine was started again since it ran for long.
	Retries int `json:"retries,omitempty"`
	// RetryAt is when a machine that ended by itself is started again; zero if that is not decided yet.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Failed says that the machine was to be started again after it ended, and could not be.
	Failed bool `json:"failed,omitempty"`
	// Message says why the machine is not what is wanted.
	Message string `json:"message,omitempty"`
}

// formatVersion is the version of the format of records.
const formatVersion = 1

// recordName is the name of the file of a record in the machine's directory. A directory without it is what an
// interrupted creation or deletion has left.
const recordName = "machine.json"

// maxRecord bounds the size of a record in bytes.
const maxRecord = 4 << 20

// hashOf is the name of a machine's directories.
func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:16]
}

// store keeps records, each in the directory of its machine.
type store struct{ root string }

func (s store) directory(name string) string { return filepath.Join(s.root, hashOf(name)) }

// save stores a record so that a crash at any moment leaves the old one or the new one.
func (s store) save(r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("the record of machine '%s' has %d bytes, and may have %d", r.Name, len(text), maxRecord)
	}
	if err != nil {
		return err
	}
	return slots.Replace(filepath.Join(s.directory(r.Name), recordName), text)
}

// erase removes the record: from then on the machine does not exist, and its directory may be removed.
func (s store) erase(name string) error {
	path := filepath.Join(s.directory(name), recordName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.SyncDirectory(filepath.Dir(path))
}

// found is what is in the store.
type found struct {
	records []Record
	// leftovers are directories without a record.
	leftovers []string
	// broken are errors of records that cannot be read. Their disks are kept.
	broken []error
}

// directoryPattern is that of hashOf: nothing else is a machine's.
const directoryPattern = "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"

func (s store) load() (found, error) {
	var f found
	directories, err := filepath.Glob(filepath.Join(s.root, directoryPattern))
	if err != nil {
		return f, err
	}
	for _, directory := range directories {
		r, err := readRecord(directory)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.leftovers = append(f.leftovers, directory)
		case err != nil:
			f.broken = append(f.broken, err)
		default:
			f.records = append(f.records, r)
		}
	}
	slices.SortFunc(f.records, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return f, nil
}

func readRecord(directory string) (Record, error) {
	path := filepath.Join(directory, recordName)
	text, err := ownfile.Read(path, maxRecord)
	if err != nil {
		return Record{}, err
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("reading %s: %w; the machine's disks are kept: restore the file, or remove the directory", path, err)
	}
	if r.Version != formatVersion || hashOf(r.Name) != filepath.Base(directory) {
		return Record{}, fmt.Errorf("reading %s: it is version %d of machine %q, which this version does not know or which belongs elsewhere; its disks are kept", path, r.Version, r.Name)
	}
	return r, nil
}
