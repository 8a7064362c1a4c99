package instance

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestALogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	log, err := openRotated(path, 100, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		line := strings.Repeat(string(rune('a'+i%26)), 39) + "\n"
		if n, err := log.Write([]byte(line)); n != 40 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	for name, first := range map[string]byte{"console.log": 'w', "console.log.1": 'u', "console.log.2": 's'} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil || len(text) != 80 || text[0] != first {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestALogGoesOnWhereItEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	for range 3 {
		log, err := openRotated(path, 1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if text, _ := os.ReadFile(path); !bytes.Equal(text, []byte("line\nline\nline\n")) {
		t.Errorf("%q", text)
	}
}

// TestALogThatCannotBeRotatedIsStillBounded: here a directory is in the way.
func TestALogThatCannotBeRotatedIsStillBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	if err := os.MkdirAll(filepath.Join(path+".1", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := openRotated(path, 100, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for range 50 {
		_, _ = log.Write(bytes.Repeat([]byte("a"), 40))
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 100 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestPlansOfOtherMachinesAreRefused(t *testing.T) {
	directory := t.TempDir()
	write := func(p Plan) {
		text, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, PlanName), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(Plan{Name: "a", Directory: directory, CPUs: 2, Network: &Network{}})
	if p, err := ReadPlan(directory); err != nil || p.Name != "a" || p.CPUs != 2 || p.Network == nil {
		t.Errorf("%+v, %v", p, err)
	}
	write(Plan{Name: "a", Directory: "/elsewhere"})
	if _, err := ReadPlan(directory); err == nil || !strings.Contains(err.Error(), "/elsewhere") {
		t.Errorf("error %v", err)
	}
}
