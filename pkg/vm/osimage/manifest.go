package osimage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
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
	slots.Stamp
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
	return slots.Replace(filepath.Join(directory, manifestName), append(text, '\n'))
}
