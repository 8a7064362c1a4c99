package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// sources are the files and directories from which the operator is built and installed.
var sources = []string{"main.go", "go.mod", "cmd", "flag", "helm", "pkg", "resources", "service"}

// lookEvery is how often the sources are checked for changes.
const lookEvery = time.Second

// develop creates the workload cluster, shows what changes, and replaces the operator whenever its sources change,
// until the context ends.
func (d *demo) develop(ctx context.Context) error {
	before, err := lastChange(d.state.root)
	if err != nil {
		return err
	}
	manifest, err := d.manifest()
	if err != nil {
		return err
	}
	if err := d.stage.Apply(ctx, manifest); err != nil {
		return err
	}
	fmt.Print(d.hints())
	d.say("save a change of %s, and the operator is built and replaced", strings.Join(sources, ", "))
	together, ctx := errgroup.WithContext(ctx)
	together.Go(func() error { return d.follow(ctx, never) })
	together.Go(func() error { return d.replaceOnSave(ctx, before) })
	return together.Wait()
}

// replaceOnSave replaces the operator whenever its sources change. What prevents that is printed, and another change is
// waited for.
func (d *demo) replaceOnSave(ctx context.Context, before time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
		now, err := lastChange(d.state.root)
		if err != nil || !now.After(before) {
			continue // an editor may be replacing a file
		}
		before = now
		began := time.Now()
		if err := d.stage.ReplaceOperator(ctx); err != nil {
			d.say("the operator is not replaced: %s", err)
			continue
		}
		d.say("the operator is replaced after %s", time.Since(began).Round(time.Second))
	}
}

// lastChange returns when a source was changed last. It ignores tests.
func lastChange(root string) (last time.Time, err error) {
	for _, source := range sources {
		err := filepath.WalkDir(filepath.Join(root, source), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") {
				return err
			}
			info, err := entry.Info()
			if err == nil && info.ModTime().After(last) {
				last = info.ModTime()
			}
			return err
		})
		if err != nil {
			return time.Time{}, err
		}
	}
	return last, nil
}
