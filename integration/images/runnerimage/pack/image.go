package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The path of the runner in the image: nodepod.Binary.
const (
	directory = "opt/kvm-operator"
	program   = directory + "/kvm-operator"
)

// runnerLayer returns a layer that only has the runner.
func runnerLayer(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err = errors.Join(addDirectory(w, "opt"), addDirectory(w, directory), addFile(w, program, 0o755, content), w.Close())
	return layer.Bytes(), err
}

// build creates an image of layers, the lowest first. They are not compressed because they only go from disk to disk,
// and packing a changed runner should take a second.
func build(in inputs, layers [][]byte) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var err error
	for _, layer := range layers {
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:   static.NewLayer(layer, types.OCIUncompressedLayer),
			History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "integration/images/runnerimage"},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", "amd64", v1.Time{Time: epoch}
	config.Config = containerConfig(in)
	return mutate.ConfigFile(image, config)
}

// containerConfig returns the same configuration as runner/Dockerfile.
func containerConfig(in inputs) v1.Config {
	return v1.Config{
		Entrypoint: []string{"/" + program},
		Cmd:        []string{in.command},
		User:       in.user,
		Env:        append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, in.environment...),
		Labels: map[string]string{
			"org.opencontainers.image.title":   in.title,
			"org.opencontainers.image.source":  "https://github.com/kvm-operator/kvm-operator",
			"org.opencontainers.image.version": in.version,
		},
	}
}
