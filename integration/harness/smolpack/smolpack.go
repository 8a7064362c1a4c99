// Package smolpack writes packed machines in smolvm's format, for tests. It follows the description of the format; smolvm itself
// has written none of what tests read.
package smolpack

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"

	"github.com/klauspost/compress/zstd"
)

// Machine is what is packed.
type Machine struct {
	// Layers are tar archives, the lowest first.
	Layers [][]byte
	// Manifest has keys in addition to, or in place of, those that Pack writes.
	Manifest map[string]any
	// Assets are written before the layers.
	Assets []File
	// Stub is the program before the assets.
	Stub []byte
}

// File is a file of the assets.
type File struct {
	Header  tar.Header
	Content []byte
}

// Name returns the name of a layer in the assets.
func Name(layer int) string { return fmt.Sprintf("layers/%012x.tar", layer) }

// Pack returns the content of a .smolmachine file.
func Pack(m Machine) ([]byte, error) {
	files := m.Assets
	layers := []map[string]any{}
	for i, content := range m.Layers {
		files = append(files, File{tar.Header{Name: Name(i), Typeflag: tar.TypeReg, Mode: 0o644}, content})
		layers = append(layers, map[string]any{"digest": fmt.Sprintf("sha256:%064x", i), "path": Name(i), "size": len(content)})
	}
	manifest := map[string]any{
		"mode": "container", "image": "example.com/web:1", "digest": fmt.Sprintf("sha256:%064x", 99), "platform": "linux/amd64", "cpus": 1, "mem": 256,
		"host_platform": "linux/amd64", "created": "2026-01-01T00:00:00Z", "smolvm_version": "1.9.3",
		"assets": map[string]any{"libraries": []any{}, "agent_rootfs": map[string]any{"path": "agent-rootfs.tar", "size": 0}, "layers": layers},
	}
	maps.Copy(manifest, m.Manifest)
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return nil, err
	}
	assets, err := Compress(files)
	return Join(m.Stub, assets, text), err
}

// Compress returns files as assets.
func Compress(files []File) ([]byte, error) {
	var compressed bytes.Buffer
	to, err := zstd.NewWriter(&compressed)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(to)
	for _, f := range files {
		f.Header.Size = int64(len(f.Content))
		if err := archive.WriteHeader(&f.Header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err = errors.Join(archive.Close(), to.Close())
	return compressed.Bytes(), err
}

// Join returns a file of these parts with its footer.
func Join(stub, assets, manifest []byte) []byte {
	footer := make([]byte, 64)
	copy(footer, "SMOLPACK")
	binary.LittleEndian.PutUint32(footer[8:], 3)
	for i, value := range []int{len(stub), len(stub), len(assets), len(stub) + len(assets), len(manifest)} {
		binary.LittleEndian.PutUint64(footer[12+8*i:], uint64(value)) //nolint:gosec // G115: a length
	}
	binary.LittleEndian.PutUint32(footer[52:], crc32.Update(crc32.ChecksumIEEE(assets), crc32.IEEETable, manifest))
	return bytes.Join([][]byte{stub, assets, manifest, footer}, nil)
}
