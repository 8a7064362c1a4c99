// Package ociimage turns container images (OCI image specification 1.1) into the root file systems of machines: it pulls
// them, merges their layers and keeps the result as squashfs, by the digest of the manifest.
package ociimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
)

// Layer opens the tar archive of a layer, uncompressed. It may be opened several times, and is the same each time.
type Layer func() (io.ReadCloser, error)

// Limits bound what an image may have.
type Limits struct {
	// Files is how many files, directories and links the merged file system may have.
	Files int
	// Bytes is how many bytes all layers may have together, without compression, and how many all of their files.
	Bytes int64
}

// entriesPerFile is how many entries all layers may have together, as a multiple of Limits.Files.
const entriesPerFile = 4

// DefaultLimits are generous.
var DefaultLimits = Limits{Files: 1 << 19, Bytes: 20 << 30}

// Flatten writes the file system that layers make together, from the lowest, as one tar archive without whiteouts:
// parents before their children, and files before hard links to them, which mksquashfs needs. The archive is the same
// whenever the layers are. The error is a MalformedError if the layers are not what they should be.
func Flatten(ctx context.Context, layers []Layer, limits Limits, out io.Writer) error {
	merged := &tree{root: newDirectory()}
	left, room, entries := limits.Bytes, limits.Bytes, 0
	for i, layer := range layers {
		err := each(ctx, layer, &left, func(entry int, header *tar.Header, _ io.Reader) error {
			// Entries that remove or replace files cost time, and add none.
			if entries++; entries > entriesPerFile*limits.Files {
				return malformed("its layers have more than %d entries", entriesPerFile*limits.Files)
			}
			// A sparse file has more bytes than its archive.
			if room -= sizeOf(header); room < 0 {
				return malformed("its files have more bytes than are allowed")
			}
			if err := merged.add(header, place{i, entry}); err != nil {
				return err
			}
			if merged.files > limits.Files {
				return malformed("it has more than %d files", limits.Files)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading layer %d: %w", i, err)
		}
	}
	return merged.write(ctx, layers, out)
}

// write writes the archive: all directories, and then the files in the order of the layers.
func (t *tree) write(ctx context.Context, layers []Layer, out io.Writer) error {
	archive := tar.NewWriter(out)
	names := map[*node][]string{}
	files := make([]map[int]*node, len(layers))
	var err error
	t.walk(func(name string, n *node) {
		switch {
		case err != nil || name == "": // the root is mksquashfs's
		case n.isDirectory():
			err = archive.WriteHeader(plain(n.header, name+"/"))
		default:
			if files[n.place.layer] == nil {
				files[n.place.layer] = map[int]*node{}
			}
			files[n.place.layer][n.place.entry] = n
			names[n] = append(names[n], name)
		}
	})
	for i, layer := range layers {
		if err != nil {
			return err
		}
		if len(files[i]) > 0 {
			err = writeFiles(ctx, archive, layer, files[i], names)
		}
	}
	return errors.Join(err, archive.Close())
}

// writeFiles writes those files of a layer that are there in the end.
func writeFiles(ctx context.Context, archive *tar.Writer, layer Layer, files map[int]*node, names map[*node][]string) error {
	return each(ctx, layer, nil, func(entry int, _ *tar.Header, content io.Reader) error {
		n, ok := files[entry]
		if !ok {
			return nil
		}
		first := names[n][0]
		if err := archive.WriteHeader(plain(n.header, first)); err != nil {
			return err
		}
		if n.header.Typeflag == tar.TypeReg {
			if _, err := io.Copy(archive, content); err != nil {
				return err
			}
		}
		for _, name := range names[n][1:] {
			link := plain(n.header, name)
			link.Typeflag, link.Linkname, link.Size = tar.TypeLink, first, 0
			if err := archive.WriteHeader(link); err != nil {
				return err
			}
		}
		return nil
	})
}

// each reads the entries of a layer, until the context ends. left, unless nil, is how many bytes may still be read.
func each(ctx context.Context, layer Layer, left *int64, visit func(entry int, header *tar.Header, content io.Reader) error) (err error) {
	stream, err := layer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	var from io.Reader = stream
	if left != nil {
		from = &meter{stream, left}
	}
	archive := tar.NewReader(from)
	for entry := 0; ; entry++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return drain(ctx, from, left != nil)
		}
		if err != nil {
			return unreadable(err)
		}
		switch header.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeCont, tar.TypeGNUSparse:
			header.Typeflag = tar.TypeReg
		}
		if err := visit(entry, header, archive); err != nil {
			return unreadable(err)
		}
	}
}

// drain reads what is behind an archive, because only at its end a layer tells whether it is the right one.
func drain(ctx context.Context, from io.Reader, all bool) error {
	for all {
		_, err := io.CopyN(io.Discard, from, drained)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreadable(err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
	return nil
}

// drained is how much is read between two checks of the context, in bytes.
const drained = 1 << 20

// unreadable returns the error of an archive as one of its image.
func unreadable(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong) {
		return malformed("%v", err)
	}
	return err
}

// meter reads until nothing is left of the bytes that may be read.
type meter struct {
	from io.Reader
	left *int64
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if *m.left -= int64(n); *m.left < 0 {
		return n, malformed("it has more bytes than are allowed")
	}
	return n, err
}

// extended is the prefix of extended attributes in the records of a header.
const extended = "SCHILY.xattr."

// plain returns the header of a file under another name, with nothing but what a file system keeps. What overlayfs keeps for
// itself is left out.
func plain(h *tar.Header, name string) *tar.Header {
	records := maps.Clone(h.PAXRecords)
	maps.DeleteFunc(records, func(key, _ string) bool { return !isKept(key) })
	return &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: sizeOf(h), Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime,
		Devmajor: h.Devmajor, Devminor: h.Devminor, PAXRecords: records, Format: tar.FormatPAX,
	}
}

// sizeOf returns the size of what follows a header.
func sizeOf(h *tar.Header) int64 {
	if h.Typeflag == tar.TypeReg {
		return h.Size
	}
	return 0
}
