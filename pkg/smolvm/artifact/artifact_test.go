package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/smolpack"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pack(t testing.TB, m smolpack.Machine) []byte {
	t.Helper()
	content, err := smolpack.Pack(m)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// put writes a file to a directory of artifacts, and returns both.
func put(t *testing.T, content []byte) (directory, path string) {
	t.Helper()
	directory = t.TempDir()
	path = filepath.Join(directory, "web.smolmachine")
	try(t, os.WriteFile(path, content, 0o600))
	return directory, path
}

// unpack opens an artifact and returns what is in its layers.
func unpack(t *testing.T, content []byte, limits ociimage.Limits) (Manifest, []string, error) {
	t.Helper()
	directory, path := put(t, content)
	file, err := Open(directory, path)
	if err != nil {
		return Manifest{}, nil, err
	}
	defer file.Close()
	digest, err := file.Digest(t.Context())
	if err != nil {
		return file.Manifest, nil, err
	}
	if sum := sha256.Sum256(content); digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the digest is %s", digest)
	}
	scratch := t.TempDir()
	layers, release, err := file.Layers(t.Context(), scratch, digest, limits)
	if entries, _ := os.ReadDir(scratch); len(entries) > 0 {
		t.Errorf("%s is left", entries[0].Name())
	}
	if err != nil {
		return file.Manifest, nil, err
	}
	defer func() { try(t, release()) }()
	var all []string
	for range 2 { // a layer is read twice
		all = nil
		for _, layer := range layers {
			from, err := layer()
			try(t, err)
			text, err := io.ReadAll(from)
			try(t, errors.Join(err, from.Close()))
			all = append(all, string(text))
		}
	}
	return file.Manifest, all, nil
}

// TestArtifactsAreRead writes them as the format is described, with all keys of a manifest, and what newer ones may
// have.
func TestArtifactsAreRead(t *testing.T) {
	other := smolpack.File{Header: tar.Header{Name: "./agent-rootfs.tar", Typeflag: tar.TypeReg}, Content: []byte("agent")}
	for name, test := range map[string]struct {
		machine smolpack.Machine
		change  func([]byte)
		want    Manifest
		layers  []string
	}{
		"a machine with two layers": {
			machine: smolpack.Machine{Layers: [][]byte{[]byte("lower"), []byte("upper")}, Assets: []smolpack.File{other, {Header: tar.Header{Name: "layers/", Typeflag: tar.TypeDir}}}, Manifest: map[string]any{
				"entrypoint": []string{"/bin/httpd"}, "cmd": []string{"-f"}, "env": []string{"A=1", "B=2", "A=3", "broken"}, "workdir": "srv/../www", "user": "web:33", "cpus": 2, "mem": 512,
				"network": true, "gpu": false, "cuda": false, "image_size": 7, "from_the_future": map[string]any{"a": []int{1}},
			}},
			want: Manifest{
				Image: "example.com/web:1", Platform: "linux/amd64", CPUs: 2, MemoryMB: 512,
				Process: ociprocess.Process{Entrypoint: []string{"/bin/httpd"}, Command: []string{"-f"}, Environment: []string{"A=3", "B=2"}, Directory: "/www", User: "web:33"},
			},
			layers: []string{"lower", "upper"},
		},
		"a program with its machine, in version 1": {
			machine: smolpack.Machine{Stub: []byte("\x7fELF"), Layers: [][]byte{[]byte("one")}, Manifest: map[string]any{"workdir": nil, "user": nil, "mode": "container"}},
			change:  func(content []byte) { content[len(content)-64+8] = 1 },
			want:    Manifest{Image: "example.com/web:1", Platform: "linux/amd64", CPUs: 1, MemoryMB: 256},
			layers:  []string{"one"},
		},
		"a manifest without mode, sizes and variables": {
			machine: smolpack.Machine{Layers: [][]byte{{}}, Manifest: map[string]any{"mode": "", "cpus": 0, "mem": 0, "platform": "linux/arm/v7"}},
			want:    Manifest{Image: "example.com/web:1", Platform: "linux/arm/v7"},
			layers:  []string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			content := pack(t, test.machine)
			if test.change != nil {
				test.change(content)
			}
			manifest, layers, err := unpack(t, content, ociimage.DefaultLimits)
			try(t, err)
			manifest.layers = nil
			if diff := cmp.Diff(test.want, manifest, cmp.AllowUnexported(Manifest{})); diff != "" {
				t.Errorf("the manifest (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.layers, layers); diff != "" {
				t.Errorf("the layers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGoldenArtifact: a file that was written once, by another writer, can still be read. Python's tarfile and json and
// zstd -19 have written it, after the description of the format.
func TestGoldenArtifact(t *testing.T) {
	content, err := os.ReadFile("testdata/golden.smolmachine")
	try(t, err)
	manifest, layers, err := unpack(t, content, ociimage.DefaultLimits)
	try(t, err)
	if len(layers) != 1 || layers[0] != "a layer\n" || manifest.CPUs != 3 || manifest.MemoryMB != 1024 || strings.Join(manifest.Process.Arguments(), " ") != "/bin/sh -c true" {
		t.Errorf("it has the layers %q and %+v", layers, manifest)
	}
}

// number changes a number of a footer.
func number(at int, value uint64) func([]byte) []byte {
	return func(content []byte) []byte {
		binary.LittleEndian.PutUint64(content[len(content)-64+at:], value)
		return content
	}
}

func TestDamagedArtifactsAreRefused(t *testing.T) {
	at := func(offset int, value byte) func([]byte) []byte {
		return func(content []byte) []byte {
			content[(len(content)+offset)%len(content)] ^= value
			return content
		}
	}
	for name, test := range map[string]struct {
		change func([]byte) []byte
		says   string
	}{
		"nothing":                          {func([]byte) []byte { return nil }, "it has 0 bytes"},
		"less than a footer":               {func(c []byte) []byte { return c[len(c)-63:] }, "63 bytes"},
		"a footer alone":                   {func(c []byte) []byte { return c[len(c)-64:] }, "end behind the file"},
		"no footer":                        {func(c []byte) []byte { return c[:len(c)-64] }, "does not begin with SMOLPACK"},
		"cut in the footer":                {func(c []byte) []byte { return c[:len(c)-1] }, "does not begin with SMOLPACK"},
		"more behind the footer":           {func(c []byte) []byte { return append(c, 0) }, "does not begin with SMOLPACK"},
		"another magic":                    {at(-64, 1), "does not begin with SMOLPACK"},
		"a reserved byte":                  {at(-1, 1), "not zero"},
		"cut at the beginning":             {func(c []byte) []byte { return c[1:] }, "its manifest has"},
		"a stub that is not there":         {number(12, 1), "program has 1 bytes"},
		"assets behind the file":           {func(c []byte) []byte { return number(12, 1<<40)(number(20, 1<<40)(c)) }, "end behind the file"},
		"assets that overflow":             {func(c []byte) []byte { return number(12, ^uint64(0))(number(20, ^uint64(0))(c)) }, "end behind the file"},
		"a size of assets that overflows":  {number(28, ^uint64(0)), "end behind the file"},
		"assets as large as a negative":    {number(28, 1<<63), "end behind the file"},
		"a manifest that overlaps":         {number(36, 1), "its manifest begins at 1"},
		"a manifest that is longer":        {number(44, ^uint64(0)), "its manifest has"},
		"a manifest that is shorter":       {number(44, 1), "its manifest has 1 bytes"},
		"a byte of the assets":             {at(20, 1), "checksum"},
		"a byte of the manifest":           {func(c []byte) []byte { return bytes.Replace(c, []byte("example.com"), []byte("exbmple.com"), 1) }, "checksum"},
		"a byte of the checksum":           {at(-10, 1), "checksum"},
		"a manifest that is too large":     {func([]byte) []byte { return smolpack.Join(nil, nil, make([]byte, maxManifest+1)) }, "may have 4194304"},
		"a manifest that is no JSON":       {func([]byte) []byte { return smolpack.Join(nil, nil, []byte("{")) }, "not readable"},
		"a manifest that is deep":          {func([]byte) []byte { return smolpack.Join(nil, nil, bytes.Repeat([]byte("["), 1<<20)) }, "not readable"},
		"a manifest with another type":     {func([]byte) []byte { return smolpack.Join(nil, nil, []byte(`{"cpus":"many"}`)) }, "not readable"},
		"processors that are no whole one": {func([]byte) []byte { return smolpack.Join(nil, nil, []byte(`{"cpus":1.5}`)) }, "not readable"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := unpack(t, test.change(pack(t, smolpack.Machine{Layers: [][]byte{[]byte("layer")}})), ociimage.DefaultLimits)
			isMalformed(t, err, test.says)
		})
	}
}

func isMalformed(t *testing.T, err error, says string) {
	t.Helper()
	var malformed *MalformedError
	if !errors.As(err, &malformed) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "web.smolmachine") || !strings.Contains(err.Error(), "copy it again") {
		t.Errorf("the error is %v, want %q", err, says)
	}
}

func TestManifestsAreChecked(t *testing.T) {
	layers := func(all ...any) map[string]any { return map[string]any{"assets": map[string]any{"layers": all}} }
	named := func(path string, size int64) map[string]any { return map[string]any{"path": path, "size": size} }
	for name, test := range map[string]struct {
		manifest map[string]any
		says     string
	}{
		"no platform":               {map[string]any{"platform": ""}, "its platform is"},
		"a platform with a newline": {map[string]any{"platform": "linux/amd64\n"}, "its platform is"},
		"too many processors":       {map[string]any{"cpus": 256}, "256 processors"},
		"a negative number of them": {map[string]any{"cpus": -1}, "-1 processors"},
		"too little memory":         {map[string]any{"mem": 63}, "63 MiB"},
		"too much memory":           {map[string]any{"mem": 1 << 40}, "MiB of memory"},
		"a zero byte":               {map[string]any{"cmd": []string{"a\x00b"}}, "zero byte"},
		"a zero byte in the user":   {map[string]any{"user": "root\x00"}, "zero byte"},
		"a user that is no text":    {map[string]any{"user": 33}, "not readable"},
		"a user of much text":       {map[string]any{"user": strings.Repeat("a", maxText+1)}, "may have 262144"},
		"too much text":             {map[string]any{"env": []string{strings.Repeat("a", maxText+1)}}, "may have 262144"},
		"too many texts":            {map[string]any{"cmd": make([]string, maxTexts-1)}, "in 4097 parts"},
		"no layers":                 {layers(), "0 layers"},
		"too many layers":           {layers(make([]any, 128)...), "128 layers"},
		"a layer elsewhere":         {layers(named("../layers/a.tar", 1)), `"../layers/a.tar"`},
		"a layer at the root":       {layers(named("/layers/a.tar", 1)), `"/layers/a.tar"`},
		"a layer that leads out":    {layers(named("layers/../../a.tar", 1)), "has to be like"},
		"a layer that is no tar":    {layers(named("layers/a", 1)), "has to be like"},
		"a layer of negative size":  {layers(named("layers/a.tar", -1)), "-1 bytes"},
		"a layer twice":             {layers(named("layers/a.tar", 1), named("./layers/a.tar", 1)), "named twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := unpack(t, pack(t, smolpack.Machine{Manifest: test.manifest}), ociimage.DefaultLimits)
			isMalformed(t, err, test.says)
		})
	}
}

func TestWhatIsNotHereIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		manifest map[string]any
		change   func([]byte) []byte
		says     string
	}{
		"the mode vm":       {manifest: map[string]any{"mode": "vm"}, says: "mode vm"},
		"another mode":      {manifest: map[string]any{"mode": "cluster"}, says: `"cluster"`},
		"a GPU":             {manifest: map[string]any{"gpu": true}, says: "GPU"},
		"CUDA":              {manifest: map[string]any{"cuda": true}, says: "GPU"},
		"secrets":           {manifest: map[string]any{"secret_refs": map[string]any{"A": map[string]any{"from_env": "A"}}}, says: "secret_refs"},
		"a checkpoint":      {manifest: map[string]any{"checkpoint": map[string]any{"version": 1}}, says: "checkpoint"},
		"a newer version":   {change: func(c []byte) []byte { c[len(c)-56] = 4; return c }, says: "version 4"},
		"a version below 1": {change: func(c []byte) []byte { c[len(c)-56] = 0; return c }, says: "version 0"},
	} {
		t.Run(name, func(t *testing.T) {
			content := pack(t, smolpack.Machine{Layers: [][]byte{nil}, Manifest: test.manifest})
			if test.change != nil {
				content = test.change(content)
			}
			_, _, err := unpack(t, content, ociimage.DefaultLimits)
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "name an image instead") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestPlatforms(t *testing.T) {
	here := "linux/" + runtime.GOARCH
	for platform, good := range map[string]bool{here: true, here + "/v8": true, here + "x": false, "linux/riscv64": false, "darwin/" + runtime.GOARCH: false} {
		directory, path := put(t, pack(t, smolpack.Machine{Layers: [][]byte{nil}, Manifest: map[string]any{"platform": platform}}))
		file, err := Open(directory, path)
		try(t, err)
		defer file.Close()
		var unsupported *UnsupportedError
		if err := file.CheckPlatform(); (err == nil) != good || err != nil && (!errors.As(err, &unsupported) || !strings.Contains(err.Error(), "this node is "+here)) {
			t.Errorf("%s: %v", platform, err)
		}
	}
}

func TestPathsOfOtherFilesAreRefused(t *testing.T) {
	directory, path := put(t, pack(t, smolpack.Machine{Layers: [][]byte{nil}}))
	in := func(name string) string { return filepath.Join(directory, name) }
	secret := filepath.Join(t.TempDir(), "secret")
	try(t, errors.Join(os.WriteFile(secret, pack(t, smolpack.Machine{Layers: [][]byte{nil}}), 0o600), os.Mkdir(in("folder"), 0o700),
		os.Symlink(secret, in("absolute")), os.Symlink("../../../../../../../.."+secret, in("relative")), os.Symlink(filepath.Dir(secret), in("out")),
		os.Symlink("../web.smolmachine", in("folder/inside")), os.Symlink("loop", in("loop")), os.Symlink("gone", in("dangling"))))
	for name, test := range map[string]struct {
		path, says string
		missing    bool
	}{
		"the file":                             {path: path},
		"a link to it":                         {path: in("folder/inside")},
		"a file that is missing":               {path: in("x.smolmachine"), says: "sidecar file not found; copy it below " + directory, missing: true},
		"a file below a file":                  {path: path + "/x", says: "not found", missing: true},
		"a link to nothing":                    {path: in("dangling"), says: "not found", missing: true},
		"an absolute link that leads out":      {path: in("absolute"), says: "path escapes"},
		"a relative link that leads out":       {path: in("relative"), says: "path escapes"},
		"a file behind a link that leads out":  {path: in("out/secret"), says: "path escapes"},
		"a link to itself":                     {path: in("loop"), says: "cannot be opened"},
		"a directory":                          {path: in("folder"), says: "is a directory"},
		"the directory of artifacts":           {path: directory, says: "not below the directory"},
		"a file elsewhere":                     {path: secret, says: "name a file below " + directory},
		"a directory with the same beginning":  {path: directory + "x/a", says: "not below"},
		"a path with ..":                       {path: directory + "/../" + filepath.Base(directory) + "/web.smolmachine", says: ".."},
		"a path with an empty part":            {path: directory + "//web.smolmachine", says: "parts that are empty"},
		"a relative path":                      {path: "web.smolmachine", says: "no absolute path"},
		"a path with a zero byte":              {path: path + "\x00", says: "control characters"},
		"a path with a newline":                {path: in("a\nb"), says: "control characters"},
		"a path that is no text":               {path: in("\xff"), says: "UTF-8"},
		"a path that is too long":              {path: in(strings.Repeat("a/", 2100) + "a"), says: "at most 4095"},
		"a name that is longer than names are": {path: in(strings.Repeat("a", 300)), says: "file name too long"},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := Open(directory, test.path)
			if test.says == "" {
				try(t, err)
				try(t, file.Close())
				return
			}
			var refused *PathError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), directory) || errors.Is(err, fs.ErrNotExist) != test.missing {
				t.Errorf("the error is %v", err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	if _, err := Open(in("none"), in("none/x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory of artifacts: %v", err)
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	directory, path := put(t, pack(t, smolpack.Machine{Layers: [][]byte{bytes.Repeat([]byte("x"), 1<<20)}}))
	file, err := Open(directory, path)
	try(t, err)
	defer file.Close()
	digest, err := file.Digest(t.Context())
	try(t, err)
	over := fmt.Errorf("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if _, err := file.Digest(ctx); !errors.Is(err, over) {
		t.Errorf("the digest: %v", err)
	}
	if _, _, err := file.Layers(ctx, t.TempDir(), digest, ociimage.DefaultLimits); !errors.Is(err, over) {
		t.Errorf("the layers: %v", err)
	}
}
