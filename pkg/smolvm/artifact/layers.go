package artifact

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

const (
	// maxWindow bounds the memory that uncompressing takes, in bytes, as with layers of images.
	maxWindow = 128 << 20
	// maxEntries is how many files the assets may have: layers, libraries, and a few more.
	maxEntries = 1024
	// bufferSize is how much is read of the file at a time, in bytes.
	bufferSize = 1 << 20
)

// Layers takes the layers out of the assets, the lowest first. They are in one file without a name in the directory, which is
// gone with release or with this process. All assets together may have limits.Bytes without compression.
//
// All of the file is read once. digest is that of Digest: a file that has other content by now is refused with a *PathError,
// which has its digest. Any other error is a
// *MalformedError, one of the file system, or the cause of ctx if that ends.
func (f *File) Layers(ctx context.Context, directory, digest string, limits ociimage.Limits) (_ []ociimage.Layer, release func() error, err error) {
	into, err := unnamed(directory)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, into.Close())
		}
	}()
	spans, err := f.unpack(ctx, into, digest, limits)
	if err != nil {
		return nil, nil, err
	}
	layers := make([]ociimage.Layer, len(spans))
	for i, s := range spans {
		layers[i] = func() (io.ReadCloser, error) {
			return io.NopCloser(bufio.NewReaderSize(io.NewSectionReader(into, s.offset, s.size), bufferSize)), nil
		}
	}
	return layers, into.Close, nil
}

// unnamed makes a file that ends with its last descriptor.
func unnamed(directory string) (*os.File, error) {
	file, err := os.CreateTemp(directory, ".layers-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// unpack writes the layers one behind the other, and returns where they are.
func (f *File) unpack(ctx context.Context, into io.Writer, digest string, limits ociimage.Limits) ([]span, error) {
	whole := sha256.New()
	if err := f.begin(ctx, whole); err != nil {
		return nil, err
	}
	assets := io.TeeReader(during{ctx, io.NewSectionReader(f.content, f.footer.assets.offset, f.footer.assets.size)}, whole)
	buffered := bufio.NewReaderSize(assets, bufferSize)
	spans, err := f.extract(ctx, buffered, into, limits)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil && !errors.As(err, new(wrong)) {
		return nil, err
	}
	// What is wrong with the assets may be that they have changed.
	if _, err := io.Copy(io.Discard, buffered); err != nil {
		return nil, err
	}
	if got := f.finish(whole); got != digest {
		return nil, f.another(got)
	}
	return spans, f.because(err)
}

// extract reads compressed assets. A few bytes may become many without compression, and a hole is none in the archive:
// the context is checked behind both.
func (f *File) extract(ctx context.Context, assets io.Reader, into io.Writer, limits ociimage.Limits) ([]span, error) {
	content, err := zstd.NewReader(assets, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, unreadable(err)
	}
	defer content.Close()
	u := unpacking{layers: f.Manifest.layers, spans: make([]span, len(f.Manifest.layers)), found: make([]bool, len(f.Manifest.layers)), into: into, most: limits.Bytes}
	metered := &meter{from: during{ctx, content}, left: limits.Bytes}
	archive := tar.NewReader(metered)
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, unreadable(err)
		}
		if entries >= maxEntries {
			return nil, wrongf("its assets have more than %d files", maxEntries)
		}
		if err := u.take(header, during{ctx, archive}); err != nil {
			return nil, err
		}
	}
	// Only at its end zstd compares its checksum.
	if _, err := io.Copy(io.Discard, metered); err != nil {
		return nil, unreadable(err)
	}
	if at := slices.Index(u.found, false); at >= 0 {
		return nil, wrongf("its assets do not have %s", u.layers[at].name)
	}
	return u.spans, nil
}

// unpacking is what has been read from the assets.
type unpacking struct {
	layers []layer
	spans  []span
	found  []bool
	into   io.Writer
	// written is how many bytes have been written, and most how many may be: a sparse file has more than its archive.
	written, most int64
}

// take writes a file of the assets, if it is a layer.
func (u *unpacking) take(header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	at := slices.IndexFunc(u.layers, func(l layer) bool { return l.name == name })
	switch {
	case at < 0:
		return nil
	case header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeGNUSparse:
		return wrongf("%s is no regular file", name)
	case u.found[at]:
		return wrongf("its assets have %s twice", name)
	case header.Size != u.layers[at].size:
		return wrongf("%s has %d bytes, and by the manifest %d", name, header.Size, u.layers[at].size)
	case header.Size > u.most-u.written:
		return wrongf("its layers have more bytes than are allowed")
	}
	n, err := io.Copy(u.into, content)
	if err != nil {
		return unreadable(err)
	}
	u.spans[at], u.found[at] = span{u.written, n}, true
	u.written += n
	return nil
}

// meter reads until nothing is left of the bytes that may be read.
type meter struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if m.left -= int64(n); m.left < 0 {
		return n, wrongf("its assets have more bytes than are allowed")
	}
	return n, err
}

// unreadable returns an error of uncompressing as one of the artifact, and one of a file, or of a context, as it is.
func unreadable(err error) error {
	var file *fs.PathError
	var already wrong
	var gone *PathError
	if errors.As(err, &file) || errors.As(err, &already) || errors.As(err, &gone) {
		return err
	}
	return wrong{fmt.Sprintf("its assets are not readable: %.200s", err)}
}
