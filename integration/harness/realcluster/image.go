package realcluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
)

// pauseImage is the image of every pod's first container.
const pauseImage = "pause.test/pause:1"

// Image is a container image of a few files.
type Image struct {
	// Name is the name of the image, with registry and tag. A tag other than "latest" keeps kubelet from contacting the
	// registry.
	Name string
	// Entrypoint is what a container runs by default.
	Entrypoint []string
	// Files are executables by their paths in the image. The values are paths on this machine.
	Files map[string]string
	// Links are symbolic links by their paths in the image.
	Links map[string]string
}

// WriteImage writes the image as an archive that nodes can import
// (https://github.com/moby/docker-image-spec/blob/main/v1.2.md).
func WriteImage(archive string, image Image) error {
	layer, err := image.layer()
	if err != nil {
		return fmt.Errorf("making image %s: %w", image.Name, err)
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": image.Entrypoint, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return fmt.Errorf("making image %s: %w", image.Name, err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{image.Name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("making image %s: %w", image.Name, err)
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	err = errors.Join(addFile(w, "layer.tar", layer), addFile(w, "config.json", config), addFile(w, "manifest.json", manifest), w.Close())
	if err != nil {
		return fmt.Errorf("making image %s: %w", image.Name, err)
	}
	return os.WriteFile(archive, content.Bytes(), 0o644)
}

func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	made := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		content, err := os.ReadFile(i.Files[name])
		if err != nil {
			return nil, err
		}
		if err := errors.Join(addParents(w, name, made), addFile(w, path.Clean("."+name), content)); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		header := &tar.Header{Typeflag: tar.TypeSymlink, Name: path.Clean("." + name), Linkname: i.Links[name], Mode: 0o777}
		if err := errors.Join(addParents(w, name, made), w.WriteHeader(header)); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"/tmp/x", "/etc/x"} {
		if err := addParents(w, name, made); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return layer.Bytes(), err
}

func addParents(w *tar.Writer, name string, made map[string]bool) error {
	parent := path.Dir(path.Clean("." + name))
	if parent == "." || made[parent] {
		return nil
	}
	if err := addParents(w, "/"+parent, made); err != nil {
		return err
	}
	made[parent] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: parent + "/", Mode: 0o1777})
}

func addFile(w *tar.Writer, name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// buildPause builds the program that is the first process of nodes and of pods.
func buildPause(program string) error {
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./integration/images/guestimage/pause")
	build.Dir = checkout()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the pause program: %w\n%s", err, output)
	}
	return nil
}
