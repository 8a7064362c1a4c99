package ociimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// layerOf returns a layer with entries.
func layerOf(t testing.TB, entries ...string) Layer {
	t.Helper()
	return stored(archiveOf(t, entries...))
}

func stored(text []byte) Layer {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
}

// archiveOf returns an archive with entries, each of which is written as one of:
//
//	dir/                a directory
//	name=content        a file
//	name->target        a symbolic link
//	name=>target        a hard link
//	name|fifo           a pipe
//	name|gone           what overlayfs has in place of a file that was removed
//	dir/#name           a directory with an extended attribute "y"
func archiveOf(t testing.TB, entries ...string) []byte {
	t.Helper()
	var text bytes.Buffer
	archive := tar.NewWriter(&text)
	for _, entry := range entries {
		header, content := headerOf(entry)
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func headerOf(entry string) (*tar.Header, string) {
	h := &tar.Header{Mode: 0o644, ModTime: time.Unix(1, 0)}
	if name, target, ok := strings.Cut(entry, "=>"); ok {
		h.Typeflag, h.Name, h.Linkname = tar.TypeLink, name, target
		return h, ""
	}
	if name, target, ok := strings.Cut(entry, "->"); ok {
		h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name, target
		return h, ""
	}
	if name, kind, ok := strings.Cut(entry, "|"); ok {
		h.Typeflag, h.Name = map[string]byte{"fifo": tar.TypeFifo, "gone": tar.TypeChar}[kind], name
		return h, ""
	}
	if name, attribute, ok := strings.Cut(entry, "#"); ok {
		h.Typeflag, h.Name, h.Mode, h.PAXRecords = tar.TypeDir, name, 0o755, map[string]string{extended + attribute: "y"}
		return h, ""
	}
	if name, content, ok := strings.Cut(entry, "="); ok {
		h.Typeflag, h.Name, h.Size = tar.TypeReg, name, int64(len(content))
		return h, content
	}
	h.Typeflag, h.Name, h.Mode = tar.TypeDir, entry, 0o755
	return h, ""
}

// entriesOf returns what an archive has, written in the same way.
func entriesOf(t *testing.T, archive io.Reader) (entries []string) {
	t.Helper()
	for reader := tar.NewReader(archive); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		separator := map[byte]string{tar.TypeReg: "=", tar.TypeSymlink: "->", tar.TypeLink: "=>", tar.TypeFifo: "|fifo", tar.TypeDir: ""}[h.Typeflag]
		entries = append(entries, h.Name+separator+h.Linkname+string(content))
	}
}

func TestLayersAreMerged(t *testing.T) {
	for name, test := range map[string]struct {
		layers [][]string
		want   []string
	}{
		"one layer":                          {[][]string{{"a/", "a/b=1", "./c->a/b", "/d|fifo"}}, []string{"a/", "a/b=1", "c->a/b", "d|fifo"}},
		"a file is replaced":                 {[][]string{{"a=1", "b=2"}, {"a=3"}}, []string{"b=2", "a=3"}},
		"a file is there twice":              {[][]string{{"a=1", "a=2"}}, []string{"a=2"}},
		"a file goes":                        {[][]string{{"a/", "a/b=1", "a/c=2"}, {"a/.wh.b"}}, []string{"a/", "a/c=2"}},
		"a directory goes":                   {[][]string{{"a/", "a/b=1"}, {".wh.a"}}, nil},
		"a directory goes and comes":         {[][]string{{"a/", "a/b=1"}, {".wh.a", "a/", "a/c=2"}}, []string{"a/", "a/c=2"}},
		"a directory comes and goes":         {[][]string{{"a/", "a/b=1"}, {"a/", "a/c=2", ".wh.a"}}, []string{"a/", "a/c=2"}},
		"a directory is opaque":              {[][]string{{"a/", "a/b=1", "a/d/", "a/d/e=2"}, {"a/", "a/c=3", "a/d/", "a/d/f=4", "a/.wh..wh..opq"}}, []string{"a/", "a/d/", "a/c=3", "a/d/f=4"}},
		"a directory is opaque twice":        {[][]string{{"a/", "a/b=1"}, {"a/.wh..wh..opq", "a/c=2", "a/.wh..wh..opq"}, {"a/.wh..wh..opq", "a/d=3"}}, []string{"a/", "a/d=3"}},
		"what AUFS keeps is left out":        {[][]string{{".wh..wh.plnk/", ".wh..wh.aufs", "a=1"}}, []string{"a=1"}},
		"overlayfs removes a file":           {[][]string{{"a/", "a/b=1", "a/c=2"}, {"a/b|gone"}}, []string{"a/", "a/c=2"}},
		"overlayfs removes a directory":      {[][]string{{"a/", "a/b=1", "c=2"}, {"a|gone", "x|gone"}}, []string{"c=2"}},
		"overlayfs removes files by links":   {[][]string{{"a/", "a/b=1", "c=2", "d=3", "e=4"}, {"a/b|gone", "c=>a/b", "./d=>./c"}}, []string{"a/", "e=4"}},
		"a link to one that comes again":     {[][]string{{"a=1", "b=2"}, {"a|gone", "a=3", "b=>a"}}, []string{"a=3", "b=>a"}},
		"overlayfs has an opaque directory":  {[][]string{{"a/", "a/b=1", "a/d/", "a/d/e=2"}, {"a/#trusted.overlay.opaque", "a/c=3"}}, []string{"a/", "a/c=3"}},
		"it is opaque behind its files":      {[][]string{{"a/", "a/b=1"}, {"a/c=3", "a/#user.overlay.opaque"}}, []string{"a/", "a/c=3"}},
		"the root is opaque":                 {[][]string{{"a=1"}, {"./#user.overlay.opaque", "b=2"}}, []string{"b=2"}},
		"an attribute that means nothing":    {[][]string{{"a/", "a/b=1"}, {"a/#user.opaque"}}, []string{"a/", "a/b=1"}},
		"a directory becomes a file":         {[][]string{{"a/", "a/b=1"}, {"a=2"}}, []string{"a=2"}},
		"a link to a directory becomes one":  {[][]string{{"b/", "b/c=1", "a->b"}, {"a/", "a/d=2"}}, []string{"a/", "b/", "b/c=1", "a/d=2"}},
		"directories that no layer has":      {[][]string{{"a/b/c=1"}}, []string{"a/", "a/b/", "a/b/c=1"}},
		"a file behind a link":               {[][]string{{"usr/", "usr/bin/", "bin->usr/bin"}, {"bin/sh=1"}}, []string{"usr/", "usr/bin/", "bin->usr/bin", "usr/bin/sh=1"}},
		"a file behind links up and down":    {[][]string{{"a/", "b/", "a/up->../../b", "c->/a/up"}, {"c/x=1"}}, []string{"a/", "b/", "a/up->../../b", "c->/a/up", "b/x=1"}},
		"a whiteout behind a link":           {[][]string{{"usr/", "usr/x=1", "u->usr"}, {"u/.wh.x"}}, []string{"usr/", "u->usr"}},
		"a hard link":                        {[][]string{{"a=1", "b=>a"}}, []string{"a=1", "b=>a"}},
		"a hard link whose name comes first": {[][]string{{"b=1", "a=>b"}}, []string{"a=1", "b=>a"}},
		"a hard link to a lower layer":       {[][]string{{"b=1"}, {"a=>b", "c=>./b"}}, []string{"a=1", "b=>a", "c=>a"}},
		"a hard link whose target goes":      {[][]string{{"a=1", "b=>a"}, {".wh.a"}}, []string{"b=1"}},
		"a hard link whose target changes":   {[][]string{{"a=1", "b=>a"}, {"a=2"}}, []string{"b=1", "a=2"}},
		"a hard link to a symbolic link":     {[][]string{{"a->x", "b=>a"}}, []string{"a->x", "b=>a"}},
		"nothing":                            {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []Layer
			for _, entries := range test.layers {
				layers = append(layers, layerOf(t, entries...))
			}
			var archive bytes.Buffer
			if err := Flatten(t.Context(), layers, DefaultLimits, &archive); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, entriesOf(t, &archive)); diff != "" {
				t.Errorf("another file system (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedLayersAreRefused(t *testing.T) {
	limits := Limits{Files: 3, Bytes: 20 << 10}
	for name, test := range map[string]struct {
		layers [][]string
		want   string
	}{
		"a name that leads out":                 {[][]string{{"a/../../etc/shadow=1"}}, "leads out"},
		"a hard link that leads out":            {[][]string{{"a=>../etc/shadow"}}, "leads out"},
		"a hard link to nothing":                {[][]string{{"a=>b"}}, "is no file of this layer"},
		"a hard link before its file":           {[][]string{{"a=>b", "b=1"}}, "is no file of this layer"},
		"a hard link to a directory":            {[][]string{{"b/", "a=>b"}}, "is no file of this layer"},
		"links that lead in a circle":           {[][]string{{"a->b", "b->a", "a/c=1"}}, "more than 40 symbolic links"},
		"a long part of a name":                 {[][]string{{strings.Repeat("a", 256) + "=1"}}, "more than 255 bytes"},
		"a link to a whiteout of a lower layer": {[][]string{{"a|gone"}, {"b=>a"}}, "is no file of this layer"},
		"a link that leads out, to a whiteout":  {[][]string{{"a|gone", "b=>../a"}}, "leads out"},
		"many entries":                          {[][]string{strings.Split(strings.Repeat("a/ .wh..wh..opq ", 7)[:len("a/ .wh..wh..opq ")*7-1], " ")}, "more than 12 entries"},
		"many files":                            {[][]string{{"a=1", "b=2"}, {"c=3", "d=4"}}, "more than 3 files"},
		"many directories of one file":          {[][]string{{"a/b/c/d=1"}}, "more than 3 files"},
		"many bytes":                            {[][]string{{"a=" + strings.Repeat("x", 30<<10)}}, "more bytes than are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []Layer
			for _, entries := range test.layers {
				layers = append(layers, layerOf(t, entries...))
			}
			err := Flatten(t.Context(), layers, limits, io.Discard)
			var refused MalformedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
	if err := Flatten(t.Context(), []Layer{func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("no archive at all" + strings.Repeat(" ", 600))), nil
	}}, limits, io.Discard); !errors.As(err, new(MalformedError)) {
		t.Errorf("what is no archive: %v", err)
	}
}

// TestAttributesOfOverlayfsAreLeftOut: the guest's overlay would take them for its own.
func TestAttributesOfOverlayfsAreLeftOut(t *testing.T) {
	var archive bytes.Buffer
	layer := layerOf(t, "a/#trusted.overlay.opaque", "b/#user.overlay.redirect", "c/#user.mime_type", "d/#trusted.overlaid")
	try(t, Flatten(t.Context(), []Layer{layer}, DefaultLimits, &archive))
	got := map[string]string{}
	for _, h := range headersOf(t, &archive) {
		for key := range h.PAXRecords {
			if name, is := strings.CutPrefix(key, extended); is {
				got[h.Name] += name
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"c/": "user.mime_type", "d/": "trusted.overlaid"}, got); diff != "" {
		t.Errorf("other attributes (-want +got):\n%s", diff)
	}
}

// sparse is an archive of 1,536 bytes with a file of 8 GiB, of which nothing is stored.
func sparse() []byte {
	header := make([]byte, 512)
	copy(header, "hole")
	copy(header[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000001\x00        S")
	copy(header[257:], "ustar  \x00")
	copy(header[386:], "00000000000\x0000000000000\x00") // the only region: nothing at 0
	header[482] = 0
	copy(header[483:], "100000000000") // the size of the file, in octal
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(header, make([]byte, 1024)...)
}

func TestSparseFilesHaveTheirSize(t *testing.T) {
	if h, err := tar.NewReader(bytes.NewReader(sparse())).Next(); err != nil || h.Size != 8<<30 {
		t.Fatalf("the archive of the test is wrong: %+v, %v", h, err)
	}
	err := Flatten(t.Context(), []Layer{stored(sparse())}, Limits{Files: 10, Bytes: 1 << 30}, io.Discard)
	if !errors.As(err, new(MalformedError)) || !strings.Contains(err.Error(), "more bytes than are allowed") {
		t.Errorf("a file of 8 GiB is allowed: %v", err)
	}
}

// FuzzFlatten: whatever two layers are, the result is an archive in which each name stays within the file system, and each
// hard link comes after its file.
func FuzzFlatten(f *testing.F) {
	f.Add(archiveOf(f, "a/", "a/b=1", "c->a", "d=>a/b"), archiveOf(f, "c/e=2", "a/.wh.b", "c/.wh..wh..opq"))
	f.Add(sparse(), archiveOf(f, "a->a", "a/b=1"))
	f.Add(archiveOf(f, "a/", "a/b=1", "c=2"), archiveOf(f, "a/#user.overlay.opaque", "a/b|gone", "c=>a/b"))
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		var out bytes.Buffer
		if Flatten(t.Context(), []Layer{stored(lower), stored(upper)}, Limits{Files: 1000, Bytes: 1 << 20}, &out) != nil {
			return
		}
		files := map[string]bool{}
		for _, entry := range headersOf(t, &out) {
			if _, err := cleaned(entry.Name); err != nil || files[entry.Name] {
				t.Errorf("%q is there twice, or leads out: %v", entry.Name, err)
			}
			if files[entry.Name] = true; entry.Typeflag == tar.TypeLink && !files[entry.Linkname] {
				t.Errorf("%q comes before its file %q", entry.Name, entry.Linkname)
			}
		}
	})
}

func headersOf(t *testing.T, archive io.Reader) (headers []*tar.Header) {
	t.Helper()
	for reader := tar.NewReader(archive); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
	}
}

func TestMergeThatIsCalledOffEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Flatten(ctx, []Layer{layerOf(t, "a=1")}, DefaultLimits, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}

// TestFilesCountWhatIsThere: files that replace or remove others are not counted twice.
func TestFilesCountWhatIsThere(t *testing.T) {
	limits := Limits{Files: 3, Bytes: 1 << 20}
	layers := []Layer{layerOf(t, "a/", "a/b=1", "a/c=2"), layerOf(t, "a=1"), layerOf(t, ".wh.a", "x=1", "y=2"), layerOf(t, "x=3", "z/", ".wh.y", "y=5")}
	if err := Flatten(t.Context(), layers, limits, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestWhatAFileKeeps: owner, mode, extended attributes and devices are kept, and other records are not.
func TestWhatAFileKeeps(t *testing.T) {
	header := &tar.Header{
		Typeflag: tar.TypeChar, Name: "dev/null", Mode: 0o4666, Uid: 33, Gid: 44, Uname: "www-data", Devmajor: 1, Devminor: 3, ModTime: time.Unix(7, 5),
		PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00", "VENDOR.other": "x"}, Format: tar.FormatPAX,
	}
	var layer, archive bytes.Buffer
	writer := tar.NewWriter(&layer)
	if err := errors.Join(writer.WriteHeader(header), writer.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Flatten(t.Context(), []Layer{stored(layer.Bytes())}, DefaultLimits, &archive); err != nil {
		t.Fatal(err)
	}
	reader := tar.NewReader(&archive)
	if _, err := reader.Next(); err != nil { // dev
		t.Fatal(err)
	}
	h, err := reader.Next()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %o %d:%d %q %d.%d %q %q", h.Name, h.Mode, h.Uid, h.Gid, h.Uname, h.Devmajor, h.Devminor, h.PAXRecords["SCHILY.xattr.security.capability"], h.PAXRecords["VENDOR.other"])
	if want := `dev/null 4666 33:44 "" 1.3 "\x01\x00" ""`; got != want {
		t.Errorf("the file is\n%s, want\n%s", got, want)
	}
}
