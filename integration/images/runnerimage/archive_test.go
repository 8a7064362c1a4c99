// Package runnerimage_test checks and runs the images that build.sh builds: that of node pods, and that of VirtualMachines.
package runnerimage_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
)

// checkout is the root of the repository.
const checkout = "../../.."

// product is an image that build.sh builds.
type product struct {
	// archive is the file below .tools, and repository the image's name without its tag.
	archive, repository string
	// stage begins its stage of runner/Dockerfile.
	stage string
	// systems is how many layers it has below the runner's.
	systems int
	// maxSize bounds the unpacked image, in bytes. A host stores it once, but has to download it before its first machine.
	maxSize float64
	// packages are some of the packages that it has files of.
	packages []string

	unpacked struct {
		sync.Once
		directory string
		err       error
	}
}

// inNodes are packages of both images.
var inNodes = []string{"base-files", "ca-certificates", "e2fsprogs", "libc6", "qemu-system-x86", "seabios"}

// The images have 81 and 108 MB.
var (
	forNodes = &product{
		archive: "runner-image.tar", repository: "docker.io/kvm-operator/kvm-operator-runner", stage: "FROM node-system AS runner\n",
		systems: 1, maxSize: 90e6, packages: inNodes,
	}
	forVMs = &product{
		archive: "vm-runner-image.tar", repository: "docker.io/kvm-operator/kvm-operator-vm-runner", stage: "FROM vm-system AS vm-runner\n",
		systems: 2, maxSize: 125e6, packages: slices.Concat(inNodes, []string{"libspice-server1", "linux-image-", "ovmf", "qemu-block-extra", "qemu-system-modules-spice", "swtpm"}),
	}
)

// forSmolVMs is the image of the runtime of SmolVMs, which runner/Dockerfile does not build.
var forSmolVMs = &product{archive: "smolvm-runtime-image.tar", repository: "docker.io/kvm-operator/kvm-operator-smolvm-runtime"}

// ofAll tests all images.
func ofAll(t *testing.T, test func(t *testing.T, p *product)) {
	t.Helper()
	ofEach(t, test)
	t.Run(forSmolVMs.archive, func(t *testing.T) { test(t, forSmolVMs) })
}

// ofEach tests the images of the runner.
func ofEach(t *testing.T, test func(t *testing.T, p *product)) {
	t.Helper()
	for _, p := range []*product{forNodes, forVMs} {
		t.Run(p.archive, func(t *testing.T) { test(t, p) })
	}
}

func (p *product) path() string { return checkout + "/.tools/" + p.archive }

// descriptor, manifest and config have the fields of the OCI image specification that the tests check.
type (
	descriptor struct {
		MediaType, Digest string
		Size              int64
		Annotations       map[string]string
	}
	index    struct{ Manifests []descriptor }
	manifest struct {
		Config descriptor
		Layers []descriptor
	}
	config struct {
		Architecture, OS string
		Config           struct {
			Entrypoint, Cmd, Env []string
			Labels               map[string]string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
)

// archive holds the files of the image's archive.
type archive map[string][]byte

func readArchive(path string) (archive, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; run `make tools`", err)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	files := archive{}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files[header.Name], err = io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}

// blob returns the content of a descriptor.
func (a archive) blob(d descriptor) ([]byte, error) {
	content, ok := a["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if !ok {
		return nil, fmt.Errorf("there is no blob %s", d.Digest)
	}
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); sum != d.Digest || int64(len(content)) != d.Size {
		return nil, fmt.Errorf("blob %s of %d bytes has the digest %s and %d bytes", d.Digest, d.Size, sum, len(content))
	}
	return content, nil
}

// image is the only image of an archive.
type image struct {
	descriptor
	config config
	layers [][]byte
}

func (a archive) image() (image, error) {
	var list index
	if err := json.Unmarshal(a["index.json"], &list); err != nil {
		return image{}, fmt.Errorf("index.json: %w", err)
	}
	if len(list.Manifests) != 1 {
		return image{}, fmt.Errorf("the index has %d images, want 1", len(list.Manifests))
	}
	i := image{descriptor: list.Manifests[0]}
	var m manifest
	if err := errors.Join(a.decode(i.descriptor, &m), a.decode(m.Config, &i.config)); err != nil {
		return image{}, err
	}
	for _, layer := range m.Layers {
		content, err := a.blob(layer)
		if err != nil {
			return image{}, err
		}
		i.layers = append(i.layers, content)
	}
	return i, nil
}

func (a archive) decode(d descriptor, into any) error {
	content, err := a.blob(d)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

// built returns the image that `make tools` has built.
func (p *product) built(t *testing.T) image {
	t.Helper()
	files, err := readArchive(p.path())
	if err != nil {
		t.Fatal(err)
	}
	i, err := files.image()
	if err != nil {
		t.Fatalf("%s: %s", p.path(), err)
	}
	return i
}

func TestTheImageIsNamedForContainerd(t *testing.T) {
	ofAll(t, func(t *testing.T, p *product) {
		annotations := p.built(t).Annotations
		repository, tag, _ := strings.Cut(annotations["io.containerd.image.name"], ":")
		if repository != p.repository || tag == "" || tag != annotations["org.opencontainers.image.ref.name"] {
			t.Errorf("containerd gets the name %q from %v", repository+":"+tag, annotations)
		}
	})
}

func TestTheImageSaysHowItIsRun(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		got := p.built(t).config
		if got.OS != "linux" || got.Architecture != "amd64" {
			t.Errorf("the image is for %s/%s", got.OS, got.Architecture)
		}
		if diff := cmp.Diff([]string{nodepod.Binary}, got.Config.Entrypoint); diff != "" {
			t.Errorf("entrypoint (-want +got):\n%s", diff)
		}
		labels := got.Config.Labels
		if labels["org.opencontainers.image.version"] == "" {
			t.Errorf("labels %v, want a version among them", labels)
		}
		dockerfile := p.settingsOfDockerfile(t)
		if title := labels["org.opencontainers.image.title"]; title == "" || !strings.Contains(dockerfile["LABEL"][0], `"`+title+`"`) {
			t.Errorf("the title is %q, and in the Dockerfile %v", title, dockerfile["LABEL"])
		}
		for name, setting := range map[string][]string{"ENTRYPOINT": got.Config.Entrypoint, "CMD": got.Config.Cmd, "ENV": got.Config.Env} {
			if diff := cmp.Diff(dockerfile[name], setting); diff != "" {
				t.Errorf("%s (-runner/Dockerfile +%s):\n%s", name, p.archive, diff)
			}
		}
	})
}

// settingsOfDockerfile returns the arguments of the one-line instructions of the image's stage.
func (p *product) settingsOfDockerfile(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "runner/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, stage, found := bytes.Cut(text, []byte("\n"+p.stage))
	if !found {
		t.Fatalf("runner/Dockerfile has no stage %q", p.stage)
	}
	stage, _, _ = bytes.Cut(stage, []byte("\nFROM "))
	settings := map[string][]string{}
	for line := range bytes.Lines(stage) {
		instruction, argument, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		list := []string{argument}
		if strings.HasPrefix(argument, "[") {
			if err := json.Unmarshal([]byte(argument), &list); err != nil {
				t.Fatalf("%s: %s", line, err)
			}
		}
		settings[instruction] = append(settings[instruction], list...)
	}
	return settings
}

func TestTheImageHasLayersForTheSystemAndOneForTheRunner(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		i := p.built(t)
		var ids []string
		for _, layer := range i.layers {
			ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(layer)))
		}
		if diff := cmp.Diff(ids, i.config.RootFS.DiffIDs); diff != "" || len(ids) != p.systems+1 {
			t.Fatalf("want %d layers (-digests of layers +diff_ids of config):\n%s", p.systems+1, diff)
		}
		if diff := cmp.Diff([]string{"opt/", "opt/kvm-operator/", strings.TrimPrefix(nodepod.Binary, "/")}, namesIn(t, i.layers[p.systems])); diff != "" {
			t.Errorf("files of the upper layer (-want +got):\n%s", diff)
		}
	})
}

// TestTheImagesShareLayers, which a host that has one of them need not download.
func TestTheImagesShareLayers(t *testing.T) {
	nodes, vms := forNodes.built(t), forVMs.built(t)
	if !bytes.Equal(nodes.layers[0], vms.layers[0]) || !bytes.Equal(nodes.layers[1], vms.layers[2]) {
		t.Error("system and runner are not the same layers in both images")
	}
	for _, name := range namesIn(t, vms.layers[1]) {
		if !strings.HasSuffix(name, "/") && slices.Contains(namesIn(t, nodes.layers[0]), name) {
			t.Errorf("%s is in two layers", name)
		}
	}
}

// namesIn returns the paths of a layer.
func namesIn(t *testing.T, layer []byte) (names []string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}
