package osimage

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// allow checks that all file URLs of an image refer to files below the allowed directories, after following links.
// Otherwise the author of an image could make any file of the container, such as images of others, be read and given to
// a guest.
func (c *Cache) allow(image Image) error {
	for _, p := range image.parts() {
		for _, url := range []string{p.file.URL, p.file.SignatureURL} {
			path := localPath(url)
			if path == "" {
				continue
			}
			if !c.allows(path) {
				return fmt.Errorf("%s: %s is below none of the directories that file URLs may lead to (%s; service.machine.imagedirectories)",
					p.name, path, orNone(c.Local))
			}
		}
	}
	return nil
}

func (c *Cache) allows(path string) bool {
	return slices.ContainsFunc(c.Local, func(directory string) bool {
		if !below(directory, path) {
			return false
		}
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			return true // a missing file is reported where it is opened
		}
		root, err := filepath.EvalSymlinks(directory)
		return err == nil && below(root, resolved)
	})
}

func below(directory, path string) bool {
	return strings.HasPrefix(filepath.Clean(path), strings.TrimSuffix(filepath.Clean(directory), "/")+"/")
}

func orNone(directories []string) string {
	if len(directories) == 0 {
		return "there is none"
	}
	return strings.Join(directories, ", ")
}
