package microvm_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

// sizesOfLayers are those of the files of an image of common size, in MiB without compression.
var sizesOfLayers = []int{64, 40, 24, 12}

// BenchmarkPull compares a pull into an empty cache, until the squashfs of the image is there, with tar that unpacks the same
// compressed layers from files. The registry is on the loopback, and part of this process.
func BenchmarkPull(b *testing.B) {
	for b.Loop() {
		all := comparePull(b, sizesOfLayers, pairs)
		var ratios []float64
		for i, tar := range all.tars {
			ratios = append(ratios, all.pulls[i].Seconds()/tar.Seconds())
		}
		b.ReportMetric(median(all.tars).Seconds(), "tar-s")
		b.ReportMetric(median(all.pulls).Seconds(), "pull-s")
		b.ReportMetric(median(ratios), "pull-ratio")
		b.ReportMetric(float64(all.squashfs)/mib, "squashfs-MiB")
		b.Logf("tar %v, pull %v, ratios %.2f", all.tars, all.pulls, ratios)
	}
}

// pulled is how long tar and pulls took, pair by pair, and the size of the squashfs in bytes.
type pulled struct {
	tars, pulls []time.Duration
	squashfs    int64
}

// comparePull pulls an image with layers of so many MiB.
func comparePull(b testing.TB, sizes []int, pairs int) (all pulled) {
	b.Helper()
	files, reference, registry := serveMixed(b, sizes)
	for range pairs {
		all.tars = append(all.tars, untar(b, files))

		images := &ociimage.Cache{Directory: b.TempDir(), Registries: ociimage.Registries{Insecure: []string{registry}}}
		begin := time.Now()
		image, err := images.Get(b.Context(), reference, nil)
		if err != nil {
			b.Fatal(err)
		}
		all.pulls = append(all.pulls, time.Since(begin))
		all.squashfs = image.Size
		if err := image.Release(); err != nil {
			b.Error(err)
		}
		if err := os.RemoveAll(images.Directory); err != nil {
			b.Error(err)
		}
	}
	return all
}

// untar unpacks layers, one over the other, and returns how long tar takes.
func untar(b testing.TB, files []string) time.Duration {
	b.Helper()
	directory := b.TempDir()
	defer os.RemoveAll(directory)
	begin := time.Now()
	for _, file := range files {
		if out, err := exec.CommandContext(b.Context(), "tar", "-x", "-f", file, "-C", directory).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	return time.Since(begin)
}

// serveMixed serves an image of mixed files from a registry, and returns its layers as files, what it is called there, and the
// address of the registry.
func serveMixed(b testing.TB, sizes []int) (files []string, reference, registry string) {
	b.Helper()
	var layers []v1.Layer
	var packed int64
	random := rand.New(rand.NewPCG(26, 26)) // always the same
	for i, size := range sizes {
		file := filepath.Join(b.TempDir(), fmt.Sprintf("layer%d.tar.gz", i))
		text, err := mixedLayer(random, i, size*mib)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
		layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			b.Fatal(err)
		}
		files, layers, packed = append(files, file), append(layers, layer), packed+int64(len(text))
	}
	image, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), layers...)
	if err != nil {
		b.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		b.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	if image, err = mutate.ConfigFile(image, config); err != nil {
		b.Fatal(err)
	}
	served, err := ocifixture.Serve(map[string]v1.Image{"library/mixed:1": image}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = served.Close() })
	b.Logf("%d layers of %v MiB have %d MiB compressed", len(layers), sizes, packed/mib)
	return files, served.Host + "/library/mixed:1", served.Host
}

// Sizes of the files of an image, in bytes: most are small, and most of the bytes are in the others.
const (
	smallest = 128
	largest  = 512 << 10
	// perDirectory is how many files a directory has.
	perDirectory = 40
)

// mixedLayer returns a compressed layer with so many bytes of files. A layer above the first replaces some of the files of
// the one below it, and removes others.
func mixedLayer(random *rand.Rand, number, size int) ([]byte, error) {
	var compressed bytes.Buffer
	compressor := gzip.NewWriter(&compressed)
	archive := tar.NewWriter(compressor)
	add := func(h tar.Header, content []byte) error {
		h.Size, h.ModTime = int64(len(content)), time.Unix(1700000000, 0)
		if err := archive.WriteHeader(&h); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	directory := ""
	for i := 0; size > 0; i++ {
		if i%perDirectory == 0 {
			below := number - min(number, i/perDirectory%2) // every other directory is one of the layer below
			directory = fmt.Sprintf("usr/layer%d/d%03d/", below, i/perDirectory)
			if err := add(tar.Header{Name: directory, Typeflag: tar.TypeDir, Mode: 0o755}, nil); err != nil {
				return nil, err
			}
		}
		name := fmt.Sprintf("f%03d", i%perDirectory)
		if number > 0 && i%perDirectory == perDirectory-1 {
			name = ".wh." + name
		}
		content := []byte(nil)
		if !strings.HasPrefix(name, ".wh.") {
			content = mixed(random, int(smallest*math.Pow(largest/smallest, random.Float64())))
		}
		if err := add(tar.Header{Name: directory + name, Typeflag: tar.TypeReg, Mode: 0o644}, content); err != nil {
			return nil, err
		}
		size -= len(content)
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressor.Close(); err != nil {
		return nil, err
	}
	return compressed.Bytes(), nil
}

// mixed returns the content of a file: half of them are text, most others are like programs, which compress less, and one
// of eight does not compress.
func mixed(random *rand.Rand, size int) []byte {
	content := make([]byte, 0, size+16)
	kind := random.IntN(8)
	for len(content) < size {
		switch {
		case kind < 4:
			content = fmt.Appendf(content, "word%d ", random.IntN(1<<random.IntN(12)))
		case kind < 7:
			content = append(content, byte(random.IntN(1<<random.IntN(9))), 0x48, byte(random.IntN(256)), byte(random.IntN(4)))
		default:
			for range 8 {
				content = append(content, byte(random.Uint32()))
			}
		}
	}
	return content[:size]
}
