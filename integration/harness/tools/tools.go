// Package tools finds the programs that make tools builds and that tests start.
package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// assets is the variable of the environment by which envtest finds an API server and etcd.
const assets = "KUBEBUILDER_ASSETS"

// Folder returns the folder of the programs: .tools of the repository that the working directory is in, whether it exists
// or not. The error says that there is no repository.
func Folder() (string, error) {
	working, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for dir := working; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return filepath.Join(dir, ".tools"), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in %s or above it: the directory of the tools has to be named", working)
		}
	}
}

// ForEnvtest points envtest to the programs of this repository, unless KUBEBUILDER_ASSETS names others. The error says
// what to do if they have not been built.
func ForEnvtest() error {
	if os.Getenv(assets) != "" {
		return nil
	}
	folder, err := Folder()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, "kube-apiserver")); err != nil {
		return fmt.Errorf("these tests need a real API server, run make tools: %w", err)
	}
	return os.Setenv(assets, folder)
}
