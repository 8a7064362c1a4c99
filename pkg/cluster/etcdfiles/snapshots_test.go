package etcdfiles

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// snapshotOf returns a file like those that etcdctl saves: pages, and their checksum.
func snapshotOf(pages int) string {
	data := strings.Repeat("x", pages*page)
	sum := sha256.Sum256([]byte(data))
	return data + string(sum[:])
}

func TestCheck(t *testing.T) {
	whole := snapshotOf(3)
	for name, test := range map[string]struct {
		content string
		damaged bool
	}{
		"a snapshot":               {content: whole},
		"one that was cut off":     {content: whole[:len(whole)-100], damaged: true},
		"one without its checksum": {content: whole[:len(whole)-sha256.Size], damaged: true},
		"one with another byte":    {content: "y" + whole[1:], damaged: true},
		"nothing":                  {damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			write(t, path, test.content)
			if err := Check(t.Context(), path); errors.Is(err, ErrDamaged) != test.damaged || err != nil && !test.damaged {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := Check(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestArchive takes a snapshot per hour: the newest are kept, and so are files of others.
func TestArchive(t *testing.T) {
	directory := t.TempDir()
	others := []string{"ab1cd-x-20200101T000000Z.db", "ab1c-20200101T000000Z.db", "notes", "ab1cd-etcd-snapshot-1-b.new", "ab1cd-20200101T000000Z.db.copy"}
	for _, name := range others {
		write(t, filepath.Join(directory, name), "")
	}
	litters := []string{"ab1cd-etcd-snapshot-1-a.new", "ab1cd-etcd-snapshot-1-a.new.part", "ab1cd-now-x2x2x.new"}
	begin := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, name := range litters {
		path := filepath.Join(directory, name)
		write(t, path, "")
		if err := os.Chtimes(path, begin.Add(-25*time.Hour), begin.Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(directory, "ab1cd-etcd-snapshot-1-b.new"), begin, begin); err != nil {
		t.Fatal(err)
	}
	a := Archive{Directory: directory, Cluster: "ab1cd", Keep: 3}
	want := slices.Clone(others)
	for hour := range 5 {
		write(t, filepath.Join(directory, "ab1cd-etcd-snapshot-2-c.new"), snapshotOf(hour+1))
		name, err := a.Add(t.Context(), "ab1cd-etcd-snapshot-2-c.new", begin.Add(time.Duration(hour)*time.Hour))
		if err != nil || name != fmt.Sprintf("ab1cd-20261122T%02d0000Z.db", hour) {
			t.Fatalf("got %s, %v", name, err)
		}
		if hour >= 2 {
			want = append(want, name)
		}
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestClocksOfHostsDiffer: the snapshot that was taken last is the newest, regardless of the clock of its host.
func TestClocksOfHostsDiffer(t *testing.T) {
	a := Archive{Directory: t.TempDir(), Cluster: "ab1cd", Keep: 1}
	for i, test := range []struct{ clock, want string }{
		{"20261122T000000Z", "20261122T000000Z"}, {"20200101T000000Z", "20261122T000001Z"}, {"20310101T000000Z", "20310101T000000Z"},
		{"20310101T000000Z", "20310101T000001Z"}, {"20261122T010000Z", "20310101T000002Z"},
	} {
		now, err := time.Parse(stamp, test.clock)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(a.Directory, "file.new"), snapshotOf(i+1))
		name, err := a.Add(t.Context(), "file.new", now)
		if err != nil || name != "ab1cd-"+test.want+".db" {
			t.Errorf("at %s it is called %s, want %s (%v)", test.clock, name, test.want, err)
		}
		if left, err := filepath.Glob(filepath.Join(a.Directory, "*")); err != nil || !slices.Equal(left, []string{filepath.Join(a.Directory, name)}) {
			t.Errorf("at %s there are %v (%v)", test.clock, left, err)
		}
	}
}

func TestOfCluster(t *testing.T) {
	for file, want := range map[string]bool{
		"ab1cd-20261122T060000Z.db": true, "ab1c-20261122T060000Z.db": false, "ab1cd-x-20261122T060000Z.db": false, "ab1cd-20261122T060000Z.db.copy": false,
		"ab1cd-some.db": false, "20261122T060000Z.db": false, "ab1cd-20261322T060000Z.db": false,
	} {
		if got := OfCluster(file, "ab1cd"); got != want {
			t.Errorf("%s: got %t", file, got)
		}
	}
}

// TestDamagedSnapshotDisplacesNoOther: a damaged snapshot gets no name and displaces no other.
func TestDamagedSnapshotDisplacesNoOther(t *testing.T) {
	directory := t.TempDir()
	write(t, filepath.Join(directory, "ab1cd-20261121T000000Z.db"), snapshotOf(1))
	write(t, filepath.Join(directory, "file.new"), "half")
	if _, err := (Archive{Directory: directory, Cluster: "ab1cd", Keep: 1}).Add(t.Context(), "file.new", time.Now()); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if !exists(filepath.Join(directory, "ab1cd-20261121T000000Z.db")) {
		t.Error("the old one is gone")
	}
}
