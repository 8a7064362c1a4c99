package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// writeArchive writes the image as an OCI image layout in a tar
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).
func writeArchive(out string, reference name.Tag, image v1.Image, layers [][]byte) error {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	w := tar.NewWriter(file)
	if err := errors.Join(addLayout(w, reference, image, layers), w.Close(), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return nil
}

func addLayout(w *tar.Writer, reference name.Tag, image v1.Image, layers [][]byte) error {
	layout, err := json.Marshal(map[string]string{"imageLayoutVersion": "1.0.0"})
	if err != nil {
		return err
	}
	index, err := indexOf(reference, image).RawManifest()
	if err != nil {
		return err
	}
	return errors.Join(addFile(w, "oci-layout", 0o644, layout), addFile(w, "index.json", 0o644, index), addBlobs(w, image, layers))
}

// indexOf names the image twice: with the annotation of the specification, and with the one that containerd uses.
func indexOf(reference name.Tag, image v1.Image) v1.ImageIndex {
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: image,
		Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: "amd64"},
			Annotations: map[string]string{
				"org.opencontainers.image.ref.name": reference.TagStr(),
				// This is the unchanged name because Name() turns docker.io into index.docker.io.
				"io.containerd.image.name": reference.String(),
			},
		},
	})
}

// addBlobs adds what the index refers to: the manifest, the config and the layers, all named after their digests.
func addBlobs(w *tar.Writer, image v1.Image, layers [][]byte) error {
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	for _, blob := range append([][]byte{manifest, config}, layers...) {
		if err := addFile(w, fmt.Sprintf("blobs/sha256/%x", sha256.Sum256(blob)), 0o644, blob); err != nil {
			return err
		}
	}
	return nil
}

func addDirectory(w *tar.Writer, path string) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: 0o755, ModTime: epoch})
}

func addFile(w *tar.Writer, path string, mode int64, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, Size: int64(len(content)), ModTime: epoch}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
