package slots

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var patience = Patience{Poll: time.Millisecond, Every: time.Hour, Waiting: func(*disk.Holder) {}}

func enter(t *testing.T, directory string) *Slot {
	t.Helper()
	s, err := Enter(t.Context(), directory, patience)
	try(t, err)
	return s
}

// TestSlotIsEnteredByOneAtATime, and the next one sees what the first made.
func TestSlotIsEnteredByOneAtATime(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "a", "slot")
	inside, most := 0, 0
	var mu sync.Mutex
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		inside += by
		most = max(most, inside)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				s, err := Enter(t.Context(), directory, patience)
				if err != nil {
					t.Error(err)
					return
				}
				count(1)
				if _, err := os.ReadDir(directory); err != nil {
					t.Error(err)
				}
				count(-1) // once it is removed, there may be another one
				if used, err := s.Remove(); used || err != nil {
					t.Error(used, err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if most != 1 {
		t.Errorf("%d were in the slot at once", most)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	s := enter(t, filepath.Join(t.TempDir(), "slot"))
	defer s.Close()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	told := 0
	_, err := Enter(ctx, s.Directory, Patience{Poll: time.Millisecond, Every: time.Hour, Waiting: func(h *disk.Holder) {
		if told++; h != nil && h.PID == os.Getpid() {
			cancel(over)
		}
	}})
	if !errors.Is(err, over) || told != 1 {
		t.Errorf("the error is %v, and %d were reported", err, told)
	}
}

func TestUsedSlotsStay(t *testing.T) {
	for name, test := range map[string]struct {
		remove func(directory string) error
	}{
		"when they are pruned": {func(directory string) error {
			return Prune(context.Background(), filepath.Dir(directory), regexp.MustCompile("^slot$"), 0, func(string) {})
		}},
		"when they are discarded": {Discard},
	} {
		t.Run(name, func(t *testing.T) {
			s := enter(t, filepath.Join(t.TempDir(), "slot"))
			remove := func(kept bool) {
				t.Helper()
				try(t, test.remove(s.Directory))
				if _, err := os.Stat(s.Directory); errors.Is(err, fs.ErrNotExist) == kept {
					t.Fatalf("it is kept: %t", !kept)
				}
			}
			remove(true) // it is locked
			use, err := s.Share()
			try(t, errors.Join(err, s.Close()))
			remove(true)
			second := Find(s.Directory)
			try(t, use.Release())
			try(t, use.Release())
			remove(true)
			second.Drop()
			remove(false)
			if Find(s.Directory) != nil {
				t.Error("a slot that is gone is found")
			}
			try(t, test.remove(s.Directory))
		})
	}
}

// TestDirectoryThatIsAFile is an error, and one that is missing has nothing to prune.
func TestDirectoryThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	try(t, os.WriteFile(file, nil, 0o600))
	if _, err := Enter(t.Context(), filepath.Join(file, "slot"), patience); err == nil {
		t.Error("a file has a slot")
	}
	if err := Prune(t.Context(), file, regexp.MustCompile("."), 0, func(string) {}); err == nil {
		t.Error("a file is pruned")
	}
	try(t, Prune(t.Context(), file+"-missing", regexp.MustCompile("."), 0, func(string) {}))
}

func TestReplacedFilesAreWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"a longer text", "short"} {
		try(t, Replace(path, []byte(text)))
		got, err := os.ReadFile(path)
		try(t, err)
		if string(got) != text {
			t.Errorf("it is %q", got)
		}
	}
	before, err := StampOf(path)
	try(t, err)
	try(t, Replace(path, []byte("other")))
	if after, err := StampOf(path); err != nil || after == before {
		t.Errorf("the stamp is %+v as before, %v", after, err)
	}
	if _, err := StampOf(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a directory has a stamp: %v", err)
	}
}
