// Package artifact reads packed machines of smolvm: files with the ending .smolmachine. One has, in this order, a program
// (which may be missing), assets (a tar archive, compressed with zstd), a manifest (JSON) and a footer. The assets of a
// machine in the mode container have the layers of its image.
//
// The format is that of smolvm 1.9.3 (crates/smolvm-pack: format.rs, packer.rs, assets.rs). Only the administrator of a node
// may write artifacts, but they are made elsewhere: nothing in them is trusted.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"io"
)

// maxFile is how large an artifact may be, in bytes: what images may have, and as much again for what is no layer.
const maxFile = 40 << 30

// File is an artifact that is open.
type File struct {
	// Manifest says what the machine is.
	Manifest Manifest

	path    string
	content io.ReaderAt
	close   func() error
	footer  footer
	// tail is what follows the assets: manifest and footer, as they were when they were read.
	tail []byte
}

// Open opens an artifact below a directory, by its absolute path, and reads its manifest. The error is a *PathError, a
// *MalformedError, an *UnsupportedError, or one of the file system. What Open has not read is not checked yet: see Digest.
func Open(directory, path string) (*File, error) {
	file, err := openBelow(directory, path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f, err := read(path, file, info.Size())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.close = file.Close
	return f, nil
}

// read reads the manifest of an artifact of this size.
func read(path string, content io.ReaderAt, size int64) (*File, error) {
	f := &File{path: path, content: content, close: func() error { return nil }}
	if size < footerSize {
		return nil, f.malformed("it has %d bytes, and its footer alone has %d", size, footerSize)
	}
	if size > maxFile {
		return nil, f.malformed("it has %d bytes, and may have %d", size, int64(maxFile))
	}
	end := make([]byte, footerSize)
	if err := f.readAt(end, size-footerSize); err != nil {
		return nil, err
	}
	var err error
	if f.footer, err = parseFooter(end, size); err != nil {
		return nil, f.because(err)
	}
	f.tail = make([]byte, size-f.footer.manifest.offset) // bounded by parseFooter
	if err := f.readAt(f.tail, f.footer.manifest.offset); err != nil {
		return nil, err
	}
	if f.Manifest, err = parseManifest(f.tail[:f.footer.manifest.size]); err != nil {
		return nil, f.because(err)
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

func (f *File) readAt(into []byte, offset int64) error {
	_, err := f.content.ReadAt(into, offset)
	if errors.Is(err, io.EOF) {
		return f.changed()
	}
	return err
}

// Digest reads all of the file and returns its SHA-256 as sha256: and 64 hexadecimal digits. The error is a *MalformedError if
// its checksum is wrong, and that of the context if that ends.
func (f *File) Digest(ctx context.Context) (string, error) {
	whole, sum := sha256.New(), crc32.NewIEEE()
	if err := f.begin(ctx, whole); err != nil {
		return "", err
	}
	if err := f.copyAssets(ctx, io.MultiWriter(whole, sum)); err != nil {
		return "", err
	}
	_, _ = sum.Write(f.tail[:f.footer.manifest.size]) // which never fails
	if got := sum.Sum32(); got != f.footer.sum {
		return "", f.malformed("its checksum is %08x, and by its footer %08x", got, f.footer.sum)
	}
	return f.finish(whole), nil
}

// begin adds what comes before the assets to a sum.
func (f *File) begin(ctx context.Context, whole io.Writer) error {
	return f.exactly(ctx, whole, 0, f.footer.assets.offset)
}

func (f *File) copyAssets(ctx context.Context, to io.Writer) error {
	return f.exactly(ctx, to, f.footer.assets.offset, f.footer.assets.size)
}

func (f *File) exactly(ctx context.Context, to io.Writer, offset, size int64) error {
	n, err := io.Copy(to, during{ctx, io.NewSectionReader(f.content, offset, size)})
	if err == nil && n != size {
		err = f.changed()
	}
	return err
}

// finish adds what comes after the assets, and returns the digest.
func (f *File) finish(whole hash.Hash) string {
	_, _ = whole.Write(f.tail) // which never fails
	return "sha256:" + hex.EncodeToString(whole.Sum(nil))
}

func (f *File) changed() error { return f.another("") }

// another returns the error of a file that is not what it was, with its digest if that is known.
func (f *File) another(digest string) error {
	return &PathError{Digest: digest, Path: f.path, What: "it has changed while it was read", Do: "copy it to another name, and rename it once it is complete"}
}

// during reads until a context ends.
type during struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one call
	from io.Reader
}

// Read implements io.Reader.
func (d during) Read(p []byte) (int, error) {
	if d.ctx.Err() != nil {
		return 0, context.Cause(d.ctx)
	}
	return d.from.Read(p)
}
