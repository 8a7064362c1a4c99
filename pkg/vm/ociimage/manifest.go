package ociimage

import (
	"encoding/json"
	"mime"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

const (
	// maxManifest is how large a manifest, or a configuration, may be, in bytes.
	maxManifest = 4 << 20
	// maxLayers is how many layers an image may have, as in docker.
	maxLayers = 127
)

// accepted are the kinds of manifests that are asked for.
var accepted = []types.MediaType{
	types.OCIImageIndex, types.DockerManifestList, types.OCIManifestSchema1, types.DockerManifestSchema2,
}

// layerTypes are those of layers. How a layer is compressed is seen from its content.
var layerTypes = []types.MediaType{
	types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
	"application/vnd.docker.image.rootfs.diff.tar.zstd",
}

// manifest is an image, or an index of images for several platforms (OCI image specification, "Image Manifest" and
// "Image Index"; Docker's image manifest version 2, schema 2). The author of the image writes it.
type manifest struct {
	MediaType types.MediaType `json:"mediaType"`
	// Manifests are those of an index.
	Manifests []v1.Descriptor `json:"manifests"`
	// Config and Layers are those of an image.
	Config *v1.Descriptor  `json:"config"`
	Layers []v1.Descriptor `json:"layers"`
}

func (m *manifest) isIndex() bool { return m.MediaType.IsIndex() }

// parseManifest parses a manifest that was sent as a media type. The layers have limits.Bytes together at most.
func parseManifest(sent string, text []byte, limits Limits) (*manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, malformed("its manifest is not readable: %v", words(err.Error()))
	}
	as, _, err := mime.ParseMediaType(sent)
	if err != nil || !slices.Contains(accepted, types.MediaType(as)) {
		as = string(m.MediaType)
	}
	switch {
	case !slices.Contains(accepted, types.MediaType(as)):
		return nil, malformed("its manifest is of the type %q", words(as))
	case m.MediaType != "" && string(m.MediaType) != as:
		return nil, malformed("its manifest says that it is %q and is sent as %q", words(string(m.MediaType)), words(as))
	case len(m.Manifests) > 0 && (m.Config != nil || len(m.Layers) > 0):
		return nil, malformed("its manifest is an index and an image at once")
	}
	m.MediaType = types.MediaType(as)
	if m.isIndex() {
		return &m, nil
	}
	return &m, m.checkImage(limits)
}

func (m *manifest) checkImage(limits Limits) error {
	if m.Config == nil {
		return malformed("its manifest has no configuration")
	}
	if !m.Config.MediaType.IsConfig() {
		return malformed("it is no container image: its configuration is of the type %q", words(string(m.Config.MediaType)))
	}
	if err := checkDescriptor(*m.Config, maxManifest); err != nil {
		return err
	}
	if len(m.Layers) > maxLayers {
		return malformed("it has %d layers; %d are allowed", len(m.Layers), maxLayers)
	}
	left := limits.Bytes
	for i, layer := range m.Layers {
		switch {
		case !layer.MediaType.IsDistributable():
			return malformed("layer %d is not distributed with the image", i)
		case !slices.Contains(layerTypes, layer.MediaType):
			return malformed("layer %d is of the type %q", i, words(string(layer.MediaType)))
		}
		if err := checkDescriptor(layer, left); err != nil {
			return err
		}
		left -= layer.Size
	}
	return nil
}

// checkDescriptor checks what a manifest says of a blob.
func checkDescriptor(d v1.Descriptor, most int64) error {
	if !digestPattern.MatchString(d.Digest.String()) {
		return malformed("the digest %q is not of the kind sha256", words(d.Digest.String()))
	}
	if d.Size < 0 || d.Size > most {
		return malformed("%s has %d bytes; %d are allowed", d.Digest, d.Size, most)
	}
	return nil
}

// choose returns the image of an index for a platform. Without a variant, one that has none is preferred.
func (m *manifest) choose(reference, platform string) (v1.Descriptor, error) {
	var found *v1.Descriptor
	var available []string
	for i, d := range m.Manifests {
		if d.Platform == nil || d.Platform.OS == "unknown" { // signatures and the like
			continue
		}
		this := platformOf(d.Platform.OS, d.Platform.Architecture, d.Platform.Variant)
		if len(available) < maxLayers {
			available = append(available, words(this))
		}
		if fits(this, platform) && (found == nil || this == platform && d.Platform.Variant == "" && found.Platform.Variant != "") {
			found = &m.Manifests[i]
		}
	}
	switch {
	case found == nil:
		return v1.Descriptor{}, &PlatformError{Reference: reference, Wanted: platform, Available: available}
	case !found.MediaType.IsImage():
		return v1.Descriptor{}, malformed("what its index has for %s is of the type %q", platform, words(string(found.MediaType)))
	}
	return *found, checkDescriptor(*found, maxManifest)
}

func platformOf(system, architecture, variant string) string {
	return strings.TrimSuffix(system+"/"+architecture+"/"+variant, "/")
}

// fits reports whether an image for a platform runs on the wanted one. Each variant does if none is wanted.
func fits(platform, wanted string) bool {
	return platform == wanted || strings.Count(wanted, "/") == 1 && strings.HasPrefix(platform, wanted+"/")
}

// configuration is what is used of that of an image (OCI image specification, "Image Configuration").
type configuration struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant"`
	RootFS       struct {
		DiffIDs []v1.Hash `json:"diff_ids"`
	} `json:"rootfs"`
	Config struct {
		Entrypoint []string `json:"Entrypoint"`
		Cmd        []string `json:"Cmd"`
		Env        []string `json:"Env"`
		WorkingDir string   `json:"WorkingDir"`
		User       string   `json:"User"`
		StopSignal string   `json:"StopSignal"`
	} `json:"config"`
}

// parseConfiguration parses the configuration of an image with a number of layers. The author of the image writes it.
func parseConfiguration(text []byte, layers int) (*configuration, error) {
	if len(text) > maxManifest {
		return nil, malformed("its configuration has more than %d bytes", maxManifest)
	}
	var c configuration
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, malformed("its configuration is not readable: %v", words(err.Error()))
	}
	if len(c.RootFS.DiffIDs) != layers {
		return nil, malformed("it has %d layers, and its configuration %d", layers, len(c.RootFS.DiffIDs))
	}
	for _, sum := range c.RootFS.DiffIDs {
		if !digestPattern.MatchString(sum.String()) {
			return nil, malformed("the digest %q is not of the kind sha256", words(sum.String()))
		}
	}
	for _, text := range slices.Concat(c.Config.Entrypoint, c.Config.Cmd, c.Config.Env, []string{c.Config.WorkingDir, c.Config.User, c.Config.StopSignal}) {
		if strings.ContainsRune(text, 0) {
			return nil, malformed("its configuration has a zero byte in %q", words(text))
		}
	}
	return &c, nil
}

func (c *configuration) platform() string { return platformOf(c.OS, c.Architecture, c.Variant) }

// process returns what the image runs. Variables without a name are left out.
func (c *configuration) process() Process {
	named := slices.DeleteFunc(slices.Clone(c.Config.Env), func(variable string) bool { return strings.Index(variable, "=") < 1 })
	p := Process{
		Entrypoint: c.Config.Entrypoint, Command: c.Config.Cmd, Environment: ociprocess.Merge(nil, named),
		User: c.Config.User, StopSignal: c.Config.StopSignal,
	}
	if c.Config.WorkingDir != "" {
		p.Directory = path.Join("/", c.Config.WorkingDir)
	}
	return p
}
