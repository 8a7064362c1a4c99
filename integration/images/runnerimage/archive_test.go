// Package runnerimage_test checks and runs the image of node pods that build.sh builds.
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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
)

// checkout is the root of the repository.
const checkout = "../../.."

// archivePath is where `make tools` puts the image.
const archivePath = checkout + "/.tools/runner-image.tar"

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
func built(t *testing.T) image {
	t.Helper()
	files, err := readArchive(archivePath)
	if err != nil {
		t.Fatal(err)
	}
	i, err := files.image()
	if err != nil {
		t.Fatalf("%s: %s", archivePath, err)
	}
	return i
}

func TestTheImageIsNamedForContainerd(t *testing.T) {
	annotations := built(t).Annotations
	repository, tag, _ := strings.Cut(annotations["io.containerd.image.name"], ":")
	if repository != "docker.io/kvm-operator/kvm-operator-runner" || tag == "" || tag != annotations["org.opencontainers.image.ref.name"] {
		t.Errorf("containerd is told the name %q by %v", repository+":"+tag, annotations)
	}
}

func TestTheImageSaysHowItIsRun(t *testing.T) {
	got := built(t).config
	if got.OS != "linux" || got.Architecture != "amd64" {
		t.Errorf("the image is for %s/%s", got.OS, got.Architecture)
	}
	if diff := cmp.Diff([]string{nodepod.Binary}, got.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if got.Config.Labels["org.opencontainers.image.version"] == "" {
		t.Errorf("labels %v, want a version among them", got.Config.Labels)
	}
	dockerfile := settingsOfDockerfile(t)
	for name, setting := range map[string][]string{"ENTRYPOINT": got.Config.Entrypoint, "CMD": got.Config.Cmd, "ENV": got.Config.Env} {
		if diff := cmp.Diff(dockerfile[name], setting); diff != "" {
			t.Errorf("%s (-runner/Dockerfile +%s):\n%s", name, archivePath, diff)
		}
	}
}

// settingsOfDockerfile returns the arguments of the one-line instructions of the last stage.
func settingsOfDockerfile(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "runner/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string][]string{}
	for line := range bytes.Lines(text[bytes.LastIndex(text, []byte("\nFROM ")):]) {
		instruction, argument, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		list := []string{argument}
		if strings.HasPrefix(argument, "[") {
			if err := json.Unmarshal([]byte(argument), &list); err != nil {
				t.Fatalf("%s: %s", line, err)
			}
		}
		settings[instruction] = list
	}
	return settings
}

func TestTheImageHasALayerForTheSystemAndOneForTheRunner(t *testing.T) {
	i := built(t)
	var ids []string
	for _, layer := range i.layers {
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(layer)))
	}
	if diff := cmp.Diff(ids, i.config.RootFS.DiffIDs); diff != "" || len(ids) != 2 {
		t.Fatalf("want two layers (-digests of layers +diff_ids of config):\n%s", diff)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(i.layers[1])); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	if diff := cmp.Diff([]string{"opt/", "opt/kvm-operator/", strings.TrimPrefix(nodepod.Binary, "/")}, names); diff != "" {
		t.Errorf("files of the upper layer (-want +got):\n%s", diff)
	}
}
