package guestnet

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

// ErrLost says that the pod's network was taken over by an earlier runner whose state file is missing or is that of
// another namespace. The pod's original configuration is unknown, and only a new pod helps.
var ErrLost = errors.New("taken over already, by a runner that left no state")

// markPrefix begins the alias of an interface that is taken over.
const markPrefix = "kvm-operator guestnet "

// mark returns the alias of the interface while the pod's network is taken over. It shows whether a state file belongs
// to this namespace: a pod whose sandbox was recreated keeps its files and has a new interface, which is not marked.
func (c Config) mark() (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding the pod's network: %w", err)
	}
	return fmt.Sprintf("%s%x", markPrefix, sha256.Sum256(text)), nil
}

// original returns what the pod's network was before anything was changed: from the state file if an interface is
// marked, otherwise by inspecting it. In the latter case it writes the file, and overwrites one that an earlier sandbox
// may have left.
func original(handle *netlink.Handle, stateFile, name string) (Config, error) {
	marks, err := marksOf(handle)
	if err != nil {
		return Config{}, err
	}
	if len(marks) != 0 {
		return storedConfig(stateFile, marks)
	}
	found, err := inspect(handle, name)
	if err != nil {
		return Config{}, err
	}
	return found, storeState(stateFile, found)
}

// storedConfig returns the content of the state file if the marks were made for it.
func storedConfig(stateFile string, marks map[string]string) (Config, error) {
	stored, err := loadState(stateFile)
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	mark, err := stored.mark()
	if err != nil {
		return Config{}, err
	}
	if marks[stored.Interface] != mark {
		return Config{}, fmt.Errorf("the state in %s is that of another interface: %w", stateFile, ErrLost)
	}
	return stored, nil
}

// marksOf returns the marks of a namespace's interfaces by name.
func marksOf(handle *netlink.Handle) (map[string]string, error) {
	links, err := handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	marks := map[string]string{}
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Alias, markPrefix) {
			marks[link.Attrs().Name] = link.Attrs().Alias
		}
	}
	return marks, nil
}

func loadState(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the state of the pod's network: %w", err)
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return Config{}, fmt.Errorf("reading the state of the pod's network from %s: %w", path, err)
	}
	return c, nil
}

// storeState writes the file either completely or not at all, even if the machine loses power.
func storeState(path string, c Config) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the pod's network: %w", err)
	}
	whole := path + ".new"
	if err := errors.Join(writeSynced(whole, text), os.Rename(whole, path), syncDirectory(path)); err != nil {
		return fmt.Errorf("writing the state of the pod's network: %w", err)
	}
	return nil
}

func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}

func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

func removeState(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the state of the pod's network: %w", err)
	}
	return syncDirectory(path)
}
