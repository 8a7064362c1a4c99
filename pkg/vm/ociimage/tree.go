package ociimage

import (
	"archive/tar"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Names of a layer that say what lower layers have to lose (OCI image specification, "Filesystem Layers"). Docker writes
// further names with the prefix of opaque, which mean nothing here.
const (
	whiteout       = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// maxDepth is how many directories there are between the root and a file at most.
const maxDepth = 512

// maxLinks is how many symbolic links lead to a directory at most, as in Linux.
const maxLinks = 40

// place is where a tar archive has the content of a file: a layer, and an entry of it, both from 0.
type place struct{ layer, entry int }

// node is a file of the merged file system: what Linux calls an inode.
type node struct {
	header *tar.Header
	place  place
	// children are those of a directory, by name; nil for anything else.
	children map[string]child
	// hiddenBy is the last layer, from 1, that hides what lower layers have in this directory; 0 for none.
	hiddenBy int
}

// child is a name in a directory.
type child struct {
	*node
	// layer is the last that has an entry for this name. A whiteout removes what lower layers have.
	layer int
}

func (n *node) isDirectory() bool { return n.children != nil }

// newDirectory returns a directory that no layer has an entry for.
func newDirectory() *node {
	return &node{header: &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}, place: place{-1, -1}, children: map[string]child{}}
}

// tree is the file system that layers make together.
type tree struct {
	root *node
	// files is how many names there are.
	files int
	// gone are the names that overlayfs has removed by the last layer.
	gone goneNames
}

// add applies an entry of a layer. Layers follow each other.
func (t *tree) add(header *tar.Header, at place) error {
	name, err := cleaned(header.Name)
	if err != nil {
		return err
	}
	if name == "" {
		if header.Typeflag == tar.TypeDir {
			t.root.header, t.root.place = header, at
			t.hideIfOpaque(t.root, header, at.layer)
		}
		return nil
	}
	parent, base := path.Split(name)
	directory, err := t.directory(parent, at.layer, true)
	if err != nil {
		return err
	}
	gone, err := t.isGone(directory, base, header, at.layer)
	switch {
	case err != nil:
		return err
	case gone:
		t.remove(directory, base, at.layer)
		return nil
	case base == whiteoutOpaque:
		t.hide(directory, at.layer)
		return nil
	case strings.HasPrefix(base, whiteoutMeta):
		return nil
	case strings.HasPrefix(base, whiteout):
		t.remove(directory, strings.TrimPrefix(base, whiteout), at.layer)
		return nil
	}
	if err := t.put(directory, base, header, at); err != nil {
		return err
	}
	t.hideIfOpaque(directory.children[base].node, header, at.layer)
	return nil
}

// put gives a directory a child.
func (t *tree) put(directory *node, base string, header *tar.Header, at place) error {
	before, exists := directory.children[base]
	if !exists {
		t.files++
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if exists && before.isDirectory() {
			before.header, before.place = header, at
			directory.children[base] = child{before.node, at.layer}
			return nil
		}
		directory.children[base] = child{&node{header: header, place: at, children: map[string]child{}}, at.layer}
	case tar.TypeLink:
		target, err := t.linked(header)
		if err != nil {
			return err
		}
		directory.children[base] = child{target, at.layer}
	case tar.TypeReg, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		directory.children[base] = child{&node{header: header, place: at}, at.layer}
	default:
		return malformed("%q has the type %q", header.Name, header.Typeflag)
	}
	if exists && before.isDirectory() {
		t.files -= count(before.node)
	}
	return nil
}

// linked returns the file that a hard link leads to, which has to exist.
func (t *tree) linked(header *tar.Header) (*node, error) {
	name, err := cleaned(header.Linkname)
	if err != nil {
		return nil, err
	}
	parent, base := path.Split(name)
	directory, err := t.directory(parent, 0, false)
	if err != nil {
		return nil, err
	}
	if directory != nil {
		if target, ok := directory.children[base]; ok && !target.isDirectory() {
			return target.node, nil
		}
	}
	return nil, malformed("%q is a hard link to %q, which is no file of this layer or a lower one", header.Name, header.Linkname)
}

// directory returns the directory with a name, and follows symbolic links within the file system. Directories that are
// missing are made, if wanted, and otherwise it returns nil.
func (t *tree) directory(name string, layer int, create bool) (*node, error) {
	w := walker{tree: t, path: []*node{t.root}, layer: layer, create: create}
	for rest, links := strings.Split(name, "/"), 0; len(rest) > 0; {
		link, err := w.enter(rest[0])
		if err != nil || len(w.path) == 0 {
			return nil, err
		}
		rest = rest[1:]
		if link == nil {
			continue
		}
		if links++; links > maxLinks {
			return nil, malformed("%q leads through more than %d symbolic links", name, maxLinks)
		}
		if strings.HasPrefix(*link, "/") {
			w.path = w.path[:1]
		}
		rest = append(strings.Split(*link, "/"), rest...)
	}
	return w.path[len(w.path)-1], nil
}

// walker is on its way to a directory.
type walker struct {
	tree *tree
	// path has the directories from the root to where it is; it is empty when there is no way on.
	path   []*node
	layer  int
	create bool
}

// enter enters a directory, or returns where the symbolic link with this name leads.
func (w *walker) enter(base string) (link *string, err error) {
	switch base {
	case "", ".":
		return nil, nil
	case "..":
		w.path = w.path[:max(1, len(w.path)-1)]
		return nil, nil
	}
	here := w.path[len(w.path)-1]
	next, exists := here.children[base]
	if exists && next.header.Typeflag == tar.TypeSymlink {
		return &next.header.Linkname, nil
	}
	if !exists || !next.isDirectory() {
		if !w.create {
			w.path = nil
			return nil, nil
		}
		if !exists {
			w.tree.files++
		}
		next = child{newDirectory(), w.layer}
		here.children[base] = next
	}
	if w.path = append(w.path, next.node); len(w.path) > maxDepth {
		return nil, malformed("%q is in more than %d directories", base, maxDepth)
	}
	return nil, nil
}

// remove removes a child that lower layers have.
func (t *tree) remove(directory *node, base string, layer int) {
	gone, exists := directory.children[base]
	switch {
	case !exists:
	case gone.layer < layer:
		delete(directory.children, base)
		t.files -= 1 + count(gone.node)
	case gone.isDirectory():
		t.hide(gone.node, layer)
	}
}

// hide removes everything from a directory that lower layers have. A layer does so once, because nothing is added to
// lower layers.
func (t *tree) hide(directory *node, layer int) {
	if directory.hiddenBy == layer+1 {
		return
	}
	directory.hiddenBy = layer + 1
	for base := range maps.Clone(directory.children) {
		t.remove(directory, base, layer)
	}
}

// count returns how many names are below a directory.
func count(n *node) (names int) {
	for _, c := range n.children {
		names += 1 + count(c.node)
	}
	return names
}

// walk visits all names, parents first, in the order of names.
func (t *tree) walk(visit func(name string, n *node)) { walk("", t.root, visit) }

func walk(name string, n *node, visit func(string, *node)) {
	visit(name, n)
	for _, base := range slices.Sorted(maps.Keys(n.children)) {
		walk(path.Join(name, base), n.children[base].node, visit)
	}
}

// cleaned returns a name relative to the root of the file system, without "." and "..", and empty for the root itself.
func cleaned(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", malformed("%q leads out of its directory", name)
		}
		if len(part) > maxPart {
			return "", malformed("a part of the name %.40q… has more than %d bytes", name, maxPart)
		}
	}
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", malformed("the name %.40q… has more than %d bytes, or a zero byte", name, maxName)
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// Limits of Linux (NAME_MAX and PATH_MAX).
const (
	maxPart = 255
	maxName = 4095
)

// MalformedError says what is wrong with an image.
type MalformedError struct{ Reason string }

// Error implements error.
func (e MalformedError) Error() string { return "the image is malformed: " + e.Reason }

func malformed(format string, arguments ...any) error {
	return MalformedError{fmt.Sprintf(format, arguments...)}
}
