package artifact

import (
	"encoding/json"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

const (
	// maxManifest is how large a manifest may be, in bytes, as with images.
	maxManifest = 4 << 20
	// maxLayers is how many layers there may be, as with images.
	maxLayers = 127
	// maxText bounds what ends in the guest's configuration, in bytes, and maxTexts in how many parts, as in requests.
	maxText  = 256 << 10
	maxTexts = 4096
	// Bounds of a machine, as in requests. Memory is in MiB.
	maxCPUs, minMemory, maxMemory = 255, 64, 64 << 20
)

// Manifest says what a packed machine is.
type Manifest struct {
	// Image is that from which it was packed, for people only.
	Image string
	// Platform is that of its programs, such as linux/amd64.
	Platform string
	// Process is what it runs.
	Process ociprocess.Process
	// CPUs, and MemoryMB in MiB, are the machine's if its creator does not say otherwise; 0 if the artifact does not say either.
	CPUs     int
	MemoryMB int64

	layers []layer
}

// layer is a file in the assets.
type layer struct {
	name string
	size int64
}

// written is a manifest as it is written. Keys that mean nothing here are left out: network (a client of the API decides on
// that), host_platform and libraries (they are of smolvm's own program), agent_rootfs (the guest has an agent of this project),
// storage_template and overlay_template (disks are made here, and used by the mode vm only).
type written struct {
	Mode       string                     `json:"mode"`
	Image      string                     `json:"image"`
	Platform   string                     `json:"platform"`
	Entrypoint []string                   `json:"entrypoint"`
	Cmd        []string                   `json:"cmd"`
	Env        []string                   `json:"env"`
	Workdir    string                     `json:"workdir"`
	User       string                     `json:"user"`
	CPUs       int64                      `json:"cpus"`
	Memory     int64                      `json:"mem"`
	GPU        bool                       `json:"gpu"`
	CUDA       bool                       `json:"cuda"`
	Secrets    map[string]json.RawMessage `json:"secret_refs"`
	Checkpoint *json.RawMessage           `json:"checkpoint"`
	Assets     struct {
		Layers []struct {
			Path string `json:"path"`
			Size int64  `json:"size"`
		} `json:"layers"`
	} `json:"assets"`
}

// parseManifest parses a manifest. Who has packed the machine writes it.
func parseManifest(text []byte) (Manifest, error) {
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return Manifest{}, wrongf("its manifest is not readable: %.200s", err)
	}
	if err := w.supported(); err != nil {
		return Manifest{}, err
	}
	if err := w.check(); err != nil {
		return Manifest{}, err
	}
	m := Manifest{Image: w.Image, Platform: w.Platform, CPUs: int(w.CPUs), MemoryMB: w.Memory, Process: w.process()}
	var err error
	m.layers, err = w.layers()
	return m, err
}

// supported refuses what a machine must not lack silently.
func (w *written) supported() error {
	switch {
	case w.Checkpoint != nil:
		return lackingf("it has the memory of a machine that runs (checkpoint)")
	case w.Mode == "vm":
		return lackingf("it has the disks of a machine (mode vm), which need smolvm's own guest system")
	case w.Mode != "" && w.Mode != "container": // smolvm takes none for container, too
		return lackingf("its mode is %.40q, and only container is known", w.Mode)
	case w.GPU || w.CUDA:
		return lackingf("it asks for a GPU")
	case len(w.Secrets) > 0:
		return lackingf("it takes secrets from the host that runs it (secret_refs)")
	}
	return nil
}

var platformPattern = regexp.MustCompile(`^[a-z0-9]{1,32}/[a-z0-9_]{1,32}(/[a-z0-9]{1,32})?$`)

func (w *written) check() error {
	texts, size := slices.Concat(w.Entrypoint, w.Cmd, w.Env, []string{w.Workdir, w.User}), 0
	for _, text := range texts {
		if size += len(text); strings.ContainsRune(text, 0) {
			return wrongf("its process has a zero byte in %.40q", text)
		}
	}
	switch {
	case !platformPattern.MatchString(w.Platform):
		return wrongf("its platform is %.40q, and has to be like linux/amd64", w.Platform)
	case size > maxText || len(texts) > maxTexts:
		return wrongf("its process has %d bytes in %d parts, and may have %d in %d", size, len(texts), maxText, maxTexts)
	case w.CPUs < 0 || w.CPUs > maxCPUs:
		return wrongf("it asks for %d processors, and a machine has 1 to %d", w.CPUs, maxCPUs)
	case w.Memory != 0 && (w.Memory < minMemory || w.Memory > maxMemory):
		return wrongf("it asks for %d MiB of memory, and a machine has %d to %d", w.Memory, minMemory, maxMemory)
	}
	return nil
}

// process returns what the machine runs. Variables without a name are left out. The user is one of the layers' own
// files, as that of an image is, and is looked up in the guest.
func (w *written) process() ociprocess.Process {
	named := slices.DeleteFunc(slices.Clone(w.Env), func(variable string) bool { return strings.Index(variable, "=") < 1 })
	p := ociprocess.Process{Entrypoint: w.Entrypoint, Command: w.Cmd, Environment: ociprocess.Merge(nil, named), User: w.User}
	if w.Workdir != "" {
		p.Directory = path.Join("/", w.Workdir)
	}
	return p
}

var layerPattern = regexp.MustCompile(`^layers/[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.tar$`)

// layers returns the layers, the lowest first. Their digests are not used: smolvm writes that of the registry's blob, or one
// that it makes up of a name, and never that of the file. What is wrong with a file shows in the checksum of the whole.
func (w *written) layers() ([]layer, error) {
	if n := len(w.Assets.Layers); n < 1 || n > maxLayers {
		return nil, wrongf("it has %d layers; 1 to %d are allowed", n, maxLayers)
	}
	var all []layer
	for _, l := range w.Assets.Layers {
		name := path.Clean(l.Path)
		switch {
		case !layerPattern.MatchString(name):
			return nil, wrongf("a layer is in %.60q, and has to be like layers/0123456789ab.tar", l.Path)
		case l.Size < 0:
			return nil, wrongf("%s has %d bytes", name, l.Size)
		case slices.ContainsFunc(all, func(other layer) bool { return other.name == name }):
			return nil, wrongf("%s is named twice", name)
		}
		all = append(all, layer{name, l.Size})
	}
	return all, nil
}

// CheckPlatform checks whether the programs of a machine run here. The error is an *UnsupportedError.
func (f *File) CheckPlatform() error {
	here := "linux/" + runtime.GOARCH
	if is := f.Manifest.Platform; is != here && !strings.HasPrefix(is, here+"/") {
		return f.because(lackingf("it is for %s, and this node is %s", is, here))
	}
	return nil
}
