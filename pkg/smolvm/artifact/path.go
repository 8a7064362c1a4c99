package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// maxPath is how long a path may be, in bytes: Linux's PATH_MAX is 4096 with the zero byte behind it.
const maxPath = 4095

// within returns a path relative to the directory, both absolute. A client of the API writes it. It checks the text alone: a
// file need not be there. The error is a *PathError.
func within(directory, path string) (string, error) {
	refuse := func(reason string) (string, error) {
		return "", &PathError{Path: path, What: reason, Do: fmt.Sprintf("name a file below %s on the node", directory)}
	}
	switch {
	case len(path) > maxPath:
		return refuse(fmt.Sprintf("it has %d bytes, and a path has at most %d", len(path), maxPath))
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return refuse("it has control characters, or is no text in UTF-8")
	case !filepath.IsAbs(path):
		return refuse("it is no absolute path")
	case filepath.Clean(path) != path:
		return refuse("it has parts that are empty, . or ..")
	}
	relative, err := filepath.Rel(directory, path)
	if err != nil || relative == "." || !filepath.IsLocal(relative) {
		return refuse("it is not below the directory of artifacts")
	}
	return relative, nil
}

// openBelow opens a regular file below a directory. A link may lead to another file there, and to none outside. It never
// blocks on a pipe, and opens no device.
func openBelow(directory, path string) (*os.File, error) {
	relative, err := within(directory, path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, explain(directory, path, err)
	}
	defer root.Close() //nolint:errcheck // it only served to find the file
	// Opening a device may have an effect, so its type is checked first.
	info, err := root.Stat(relative)
	if err != nil {
		return nil, explain(directory, path, err)
	}
	if err := regular(directory, path, info); err != nil {
		return nil, err
	}
	file, err := root.OpenFile(relative, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(directory, path, err)
	}
	// It may have been replaced since, so the open file is checked.
	if info, err = file.Stat(); err == nil {
		err = regular(directory, path, info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func regular(directory, path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	reason := "it is no regular file"
	if info.IsDir() {
		reason = "it is a directory"
	}
	return &PathError{Path: path, What: reason, Do: fmt.Sprintf("name a file below %s on the node", directory)}
}

// explain returns why a file cannot be opened.
func explain(directory, path string, err error) error {
	var detail *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		// The first words are smolvm's.
		return &PathError{Path: path, What: "sidecar file not found", Do: fmt.Sprintf("copy it below %s on the node", directory), Missing: true}
	case errors.As(err, &detail):
		err = detail.Err
	}
	return &PathError{Path: path, What: fmt.Sprintf("it cannot be opened: %v", err), Do: fmt.Sprintf("put the file itself below %s on the node", directory)}
}
