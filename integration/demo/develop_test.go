package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestChangesOfSourcesAreSeen: a new, changed or removed source counts, a test does not.
func TestChangesOfSourcesAreSeen(t *testing.T) {
	s := newState(t)
	long := time.Now().Add(-time.Hour)
	for _, source := range sources {
		path := filepath.Join(s.root, source)
		if filepath.Ext(source) == "" {
			path = filepath.Join(path, "some.go")
		}
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chtimes(path, long, long))
		if filepath.Ext(source) == "" {
			err = errors.Join(err, os.Chtimes(filepath.Dir(path), long, long))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		what   string
		change func() error
		seen   bool
	}{
		{"nothing", func() error { return nil }, false},
		{"a test", func() error {
			path := filepath.Join(s.root, "pkg", "some_test.go")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chtimes(filepath.Dir(path), long, long)
		}, false},
		{"a file outside", func() error { return os.WriteFile(filepath.Join(s.root, "README.md"), nil, 0o600) }, false},
		{"a changed source", func() error { return os.WriteFile(filepath.Join(s.root, "pkg", "some.go"), nil, 0o600) }, true},
		{"a new template of the chart", func() error { return os.WriteFile(filepath.Join(s.root, "helm", "x.yaml"), nil, 0o600) }, true},
		{"a removed source", func() error { return os.Remove(filepath.Join(s.root, "cmd", "some.go")) }, true},
	} {
		before, err := lastChange(s.root)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // clocks of file systems are coarse
		if err := test.change(); err != nil {
			t.Fatal(err)
		}
		after, err := lastChange(s.root)
		if seen := after.After(before); err != nil || seen != test.seen {
			t.Errorf("%s: it is seen: %t (%v), want %t", test.what, seen, err, test.seen)
		}
	}
}
