package ociimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

var digestOfFile = "sha256:" + strings.Repeat("ab", 32)

// localOf is an image of this host whose layers are counted when they are asked for.
func localOf(asked *int, released *int, layers ...Layer) Local {
	return Local{
		Reference: "/artifacts/web.smolmachine", Digest: digestOfFile, Platform: "linux/amd64", Process: Process{Command: []string{"web"}},
		Layers: func(context.Context, string, Limits) ([]Layer, func() error, error) {
			*asked++
			return layers, func() error { *released++; return nil }, nil
		},
	}
}

// TestAnImageOfAFileIsMadeOnce, is opened by its digest, repaired when it was damaged, and pruned like those that are
// pulled.
func TestAnImageOfAFileIsMadeOnce(t *testing.T) {
	needs(t, packer, "unsquashfs")
	c := &Cache{Directory: t.TempDir(), Platform: "linux/amd64"}
	asked, released := 0, 0
	local := localOf(&asked, &released, layerOf(t, "a=lower", "b=1"), layerOf(t, "a=upper", ".wh.b"))
	for range 2 {
		got, err := c.Add(t.Context(), local)
		try(t, err)
		requireFile(t, got, "a", "upper")
		if got.Digest != digestOfFile || got.Process.Command[0] != "web" || asked != 1 || released != 1 {
			t.Errorf("it is %+v, and its layers were asked for %d times and released %d times", got, asked, released)
		}
		opened, err := c.Open(digestOfFile)
		try(t, err)
		try(t, errors.Join(opened.Release(), got.Release()))
	}
	got, err := c.Add(t.Context(), local)
	try(t, err)
	try(t, os.WriteFile(got.Root, []byte("damaged"), 0o600))
	try(t, got.Release())
	if got, err = c.Add(t.Context(), local); err != nil || asked != 2 {
		t.Fatalf("a damaged one: %v, asked %d times", err, asked)
	}
	requireFile(t, got, "a", "upper")
	try(t, c.Prune(t.Context(), 0))
	if _, err := os.Stat(got.Root); err != nil {
		t.Errorf("while it is used: %v", err)
	}
	try(t, got.Release())
	try(t, c.Prune(t.Context(), 0))
	if _, err := c.Open(digestOfFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after it was pruned: %v", err)
	}
}

// TestNoPullGetsAnImageOfAFile, also not one by its digest.
func TestNoPullGetsAnImageOfAFile(t *testing.T) {
	needs(t, packer)
	r := newRegistry(t)
	c, _ := newCache(t, t.TempDir(), r)
	c.Platform = "linux/amd64"
	asked, released := 0, 0
	got, err := c.Add(t.Context(), localOf(&asked, &released, layerOf(t, "a=secret")))
	try(t, err)
	defer func() { try(t, got.Release()) }()
	for _, reference := range []string{r.host + "/web@" + digestOfFile, r.host + "/artifacts/web.smolmachine@" + digestOfFile} {
		var failed *PullError
		if _, err := c.Get(t.Context(), reference, nil); !errors.As(err, &failed) {
			t.Errorf("%s: %v", reference, err)
		}
	}
}

func TestNothingIsLeftOfAnImageOfAFileThatFails(t *testing.T) {
	needs(t, packer)
	broken := errors.New("the file is gone")
	full := fmt.Errorf("writing: %w", unix.ENOSPC)
	failing := func(err error) func(*Local) {
		return func(l *Local) {
			l.Layers = func(context.Context, string, Limits) ([]Layer, func() error, error) { return nil, nil, err }
		}
	}
	for name, test := range map[string]struct {
		change func(*Local)
		layers []Layer
		limits Limits
		is     func(error) bool
	}{
		"without its file":       {change: failing(broken), is: func(err error) bool { return errors.Is(err, broken) }},
		"without room":           {change: failing(full), is: func(err error) bool { var f *disk.FullError; return errors.As(err, &f) }},
		"with layers that break": {layers: []Layer{layerOf(t, "a=>b")}, is: func(err error) bool { return errors.As(err, new(MalformedError)) }},
		"with too much in them":  {layers: []Layer{layerOf(t, "a=many bytes")}, limits: Limits{Files: 10, Bytes: 100}, is: func(err error) bool { return errors.As(err, new(MalformedError)) }},
		"for another platform": {change: func(l *Local) { l.Platform = "linux/s390x" }, is: func(err error) bool {
			var other *PlatformError
			return errors.As(err, &other) && strings.Contains(err.Error(), "linux/s390x")
		}},
		"without a digest": {change: func(l *Local) { l.Digest = "sha256:../.." }, is: func(err error) bool { return err != nil && strings.Contains(err.Error(), "no digest") }},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cache{Directory: t.TempDir(), Platform: "linux/amd64", Limits: test.limits}
			asked, released := 0, 0
			local := localOf(&asked, &released, test.layers...)
			if test.change != nil {
				test.change(&local)
			}
			if _, err := c.Add(t.Context(), local); !test.is(err) {
				t.Errorf("the error is %v", err)
			}
			if asked != released {
				t.Errorf("asked for %d times and released %d times", asked, released)
			}
			if left, _ := filepath.Glob(filepath.Join(c.Directory, imagesName, "*")); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}
