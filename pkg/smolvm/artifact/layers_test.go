package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kvm-operator/kvm-operator/integration/harness/smolpack"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

// with returns a file with these assets, and a manifest with a layer of 5 bytes.
func with(t testing.TB, assets []byte) []byte {
	t.Helper()
	manifest, err := json.Marshal(map[string]any{"platform": "linux/amd64", "assets": map[string]any{"layers": []any{map[string]any{"path": smolpack.Name(0), "size": 5}}}})
	if err != nil {
		t.Fatal(err)
	}
	return smolpack.Join(nil, assets, manifest)
}

func compressed(t testing.TB, files ...smolpack.File) []byte {
	t.Helper()
	assets, err := smolpack.Compress(files)
	if err != nil {
		t.Fatal(err)
	}
	return assets
}

func entry(name string, kind byte, content string) smolpack.File {
	return smolpack.File{Header: tar.Header{Name: name, Typeflag: kind, Mode: 0o644}, Content: []byte(content)}
}

func TestAssetsAreChecked(t *testing.T) {
	good := entry(smolpack.Name(0), tar.TypeReg, "layer")
	link := smolpack.File{Header: tar.Header{Name: smolpack.Name(0), Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}
	many := make([]smolpack.File, maxEntries+1)
	for i := range many {
		many[i] = entry(fmt.Sprintf("lib/%d", i), tar.TypeReg, "")
	}
	limits := ociimage.Limits{Files: 100, Bytes: 1 << 20}
	for name, test := range map[string]struct {
		assets []byte
		says   string
	}{
		"no assets":                       {nil, "do not have layers/000000000000.tar"},
		"assets that are not compressed":  {[]byte("this is no zstd"), "not readable"},
		"assets that end early":           {compressed(t, good)[:30], "not readable"},
		"bytes behind the assets":         {append(compressed(t, good), "more"...), "not readable"},
		"no tar archive":                  {packed(t, bytes.Repeat([]byte("x"), 2000)), "not readable"},
		"an archive that is cut":          {packed(t, archive(t, good)[:514]), "not readable"},
		"another layer":                   {compressed(t, entry("layers/other.tar", tar.TypeReg, "layer")), "do not have"},
		"a layer of another size":         {compressed(t, entry(smolpack.Name(0), tar.TypeReg, "layers")), "6 bytes, and by the manifest 5"},
		"a layer twice":                   {compressed(t, good, good), "twice"},
		"a layer that is a link":          {compressed(t, link), "no regular file"},
		"a layer that is a directory":     {compressed(t, smolpack.File{Header: tar.Header{Name: smolpack.Name(0) + "/", Typeflag: tar.TypeDir}}), "no regular file"},
		"too many files":                  {compressed(t, many...), "more than 1024 files"},
		"a bomb before the layer":         {compressed(t, entry("lib/a", tar.TypeReg, strings.Repeat("\x00", 2<<20)), good), "more bytes than are allowed"},
		"a bomb behind the archive":       {packed(t, append(archive(t, good), make([]byte, 2<<20)...)), "more bytes than are allowed"},
		"a window that needs much memory": {wide(archive(t, good)), "window size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := unpack(t, with(t, test.assets), limits)
			isMalformed(t, err, test.says)
		})
	}
	if _, layers, err := unpack(t, with(t, compressed(t, good)), limits); err != nil || len(layers) != 1 || layers[0] != "layer" {
		t.Errorf("the good one has %q, %v", layers, err)
	}
}

// wide returns content as a frame of zstd that asks for a window of 512 MiB (RFC 8878, 3.1.1), in one block that is not
// compressed.
func wide(content []byte) []byte {
	block := len(content)<<3 | 1
	return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 19 << 3, byte(block), byte(block >> 8), byte(block >> 16)}, content...)
}

// TestSparseLayersCount: an archive of a few bytes may have a file of many.
func TestSparseLayersCount(t *testing.T) {
	const size = 8 << 20
	manifest, err := json.Marshal(map[string]any{"platform": "linux/amd64", "assets": map[string]any{"layers": []any{map[string]any{"path": smolpack.Name(0), "size": size}}}})
	try(t, err)
	content := smolpack.Join(nil, packed(t, sparse(t, smolpack.Name(0), size)), manifest)
	_, _, err = unpack(t, content, ociimage.Limits{Files: 100, Bytes: 1 << 20})
	isMalformed(t, err, "layers have more bytes than are allowed")
	_, layers, err := unpack(t, content, ociimage.Limits{Files: 100, Bytes: size})
	if err != nil || len(layers) != 1 || len(layers[0]) != size {
		t.Errorf("it has %d layers, %v", len(layers), err)
	}
}

// TestUnpackingEndsWithItsContext, also where nothing more of the file has to be read for many bytes.
func TestUnpackingEndsWithItsContext(t *testing.T) {
	const size = 64 << 20
	zeros := entry(smolpack.Name(0), tar.TypeReg, strings.Repeat("\x00", size))
	over := errors.New("over")
	for name, assets := range map[string][]byte{
		"a highly compressed layer": compressed(t, zeros),
		"a layer that is a hole":    packed(t, sparse(t, smolpack.Name(0), size)),
	} {
		t.Run(name, func(t *testing.T) {
			content := smolpack.Join(nil, assets, fmt.Appendf(nil, `{"platform":"linux/amd64","assets":{"layers":[{"path":%q,"size":%d}]}}`, smolpack.Name(0), size))
			file, err := read("web.smolmachine", bytes.NewReader(content), int64(len(content)))
			try(t, err)
			digest, err := file.Digest(t.Context())
			try(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			into := &ending{end: func() { cancel(over) }}
			if _, err := file.unpack(ctx, into, digest, ociimage.DefaultLimits); !errors.Is(err, over) {
				t.Errorf("the error is %v", err)
			}
			if into.counter > 1<<20 {
				t.Errorf("%d bytes are written", into.counter)
			}
		})
	}
}

// ending counts what is written, and calls end.
type ending struct {
	counter
	end func()
}

func (e *ending) Write(p []byte) (int, error) {
	e.end()
	return e.counter.Write(p)
}

// sparse returns an archive in the format of GNU tar with a file that is one hole.
func sparse(t *testing.T, name string, size int64) []byte {
	t.Helper()
	header := make([]byte, 512)
	copy(header, name)
	copy(header[100:], "0000644\x00")
	copy(header[108:], "0000000\x000000000\x00")
	copy(header[124:], "00000000000\x00")
	copy(header[136:], "00000000000\x00")
	copy(header[148:], "        ")
	header[156] = tar.TypeGNUSparse
	copy(header[257:], "ustar  \x00")
	copy(header[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0)) // a piece of no bytes at the end
	copy(header[483:], fmt.Sprintf("%011o\x00", size))
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(header, make([]byte, 1024)...)
}

// packed returns compressed content.
func packed(t testing.TB, content []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(content, nil)
}

func archive(t testing.TB, files ...smolpack.File) []byte {
	t.Helper()
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := r.DecodeAll(compressed(t, files...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestFilesThatChangeAreNotUsed: what was opened, what has a digest, and what is unpacked are the same.
func TestFilesThatChangeAreNotUsed(t *testing.T) {
	first := pack(t, smolpack.Machine{Layers: [][]byte{[]byte("layer 0")}})
	var second []byte // of the same size
	for i := 1; len(second) != len(first); i++ {
		second = pack(t, smolpack.Machine{Layers: [][]byte{fmt.Appendf(nil, "layer %d", i)}})
	}
	damaged := bytes.Clone(first)
	damaged[10] ^= 1
	for name, test := range map[string]struct {
		into []byte
	}{"into another artifact": {second}, "into a damaged one": {damaged}, "and is shorter": {first[:20]}} {
		t.Run(name, func(t *testing.T) {
			directory, path := put(t, first)
			file, err := Open(directory, path)
			try(t, err)
			defer file.Close()
			digest, err := file.Digest(t.Context())
			try(t, err)
			try(t, os.WriteFile(path, test.into, 0o600)) // in place
			_, _, err = file.Layers(t.Context(), t.TempDir(), digest, ociimage.DefaultLimits)
			var changed *PathError
			if !errors.As(err, &changed) || !strings.Contains(err.Error(), "has changed") {
				t.Errorf("the error is %v", err)
			}
			if _, err := file.Digest(t.Context()); err == nil {
				t.Error("the file has a digest")
			}
		})
	}
}

// FuzzArtifact: no content of a file makes the reader fail in another way than by an error of its own kinds, or has it write
// more than is allowed.
func FuzzArtifact(f *testing.F) {
	good := pack(f, smolpack.Machine{Layers: [][]byte{[]byte("layer")}, Manifest: map[string]any{"cmd": []string{"a"}}})
	f.Add(good)
	f.Add(good[:len(good)-64])
	f.Add(with(f, compressed(f, entry(smolpack.Name(0), tar.TypeReg, "layer"))))
	f.Add(smolpack.Join([]byte("stub"), nil, []byte("{}")))
	f.Fuzz(func(t *testing.T, content []byte) { fuzz(t, content) })
}

// FuzzParts joins parts with a footer that fits, so that more of the content is reached.
func FuzzParts(f *testing.F) {
	f.Add(compressed(f, entry(smolpack.Name(0), tar.TypeReg, "layer")), []byte(`{"platform":"linux/amd64","assets":{"layers":[{"path":"layers/000000000000.tar","size":5}]}}`))
	f.Add(packed(f, []byte("x")), []byte(`{"mode":"vm"}`))
	f.Fuzz(func(t *testing.T, assets, manifest []byte) { fuzz(t, smolpack.Join(nil, assets, manifest)) })
}

func fuzz(t *testing.T, content []byte) {
	file, err := read("web.smolmachine", bytes.NewReader(content), int64(len(content)))
	if err == nil {
		_, err = file.Digest(t.Context())
	}
	if err == nil {
		var written counter
		var digest string
		if digest, err = file.Digest(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = file.unpack(t.Context(), &written, digest, ociimage.Limits{Files: 10, Bytes: 64 << 10})
		if written > 64<<10 {
			t.Errorf("%d bytes are written", written)
		}
	}
	var malformed *MalformedError
	var unsupported *UnsupportedError
	if err != nil && !errors.As(err, &malformed) && !errors.As(err, &unsupported) {
		t.Errorf("the error is %v (%T)", err, err)
	}
}

// counter counts what is written.
type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
