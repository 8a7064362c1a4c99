package ociimage

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory that a layer compressed with zstd takes, in bytes. It is that of zstd's command line.
const maxWindow = 128 << 20

var (
	magicGzip = []byte{0x1f, 0x8b}
	magicZstd = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// blobLayer returns the layer whose blob is in a file. What is read of it first is compared with the digest of its
// uncompressed content, sha256: and hexadecimal digits.
func blobLayer(file, digest string) Layer {
	var verified atomic.Bool
	return func() (io.ReadCloser, error) {
		blob, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		l := &layer{file: blob, want: digest, verified: &verified}
		if !verified.Load() {
			l.sum = sha256.New()
		}
		if l.content, l.end, err = unpacked(bufio.NewReaderSize(blob, bufferSize)); err != nil {
			return nil, errors.Join(unpackError(err), blob.Close())
		}
		return l, nil
	}
}

// layer reads the uncompressed content of a blob. The author of the image writes it.
type layer struct {
	file    *os.File
	content io.Reader
	// end frees what uncompressing needs.
	end  func()
	want string
	// sum is nil if the content was verified before.
	sum      hash.Hash
	verified *atomic.Bool
}

// Read implements io.Reader.
func (l *layer) Read(p []byte) (int, error) {
	n, err := l.content.Read(p)
	if l.sum != nil {
		_, _ = l.sum.Write(p[:n]) // which never fails
	}
	if !errors.Is(err, io.EOF) || l.sum == nil {
		return n, unpackError(err)
	}
	if got := "sha256:" + hex.EncodeToString(l.sum.Sum(nil)); got != l.want {
		return n, malformed("a layer has the content %s, and by its configuration %s", got, l.want)
	}
	l.verified.Store(true)
	return n, err
}

// Close implements io.Closer.
func (l *layer) Close() error {
	l.end()
	return l.file.Close()
}

// unpacked uncompresses content that begins like one that is compressed.
func unpacked(blob *bufio.Reader) (content io.Reader, end func(), err error) {
	begin, err := blob.Peek(len(magicZstd))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(begin, magicGzip):
		content, err := gzip.NewReader(blob)
		return content, func() {}, err
	case bytes.HasPrefix(begin, magicZstd):
		content, err := zstd.NewReader(blob, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return content, content.Close, nil
	}
	return blob, func() {}, nil
}

// unpackError returns an error of uncompressing as one of the image, and one of the file as it is.
func unpackError(err error) error {
	var file *fs.PathError
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &file) {
		return err
	}
	return malformed("a layer cannot be uncompressed: %v", err)
}
