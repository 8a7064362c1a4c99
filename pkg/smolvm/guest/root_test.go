package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// newRoot returns a root with links and files that could fool process 1.
func newRoot(t *testing.T) *Root {
	t.Helper()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "outside"), []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	top := filepath.Join(directory, "root")
	for _, name := range []string{"bin", "etc", "a/b"} {
		if err := os.MkdirAll(filepath.Join(top, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"up": "../outside", "absolute": "/etc/hosts", "loop": "loop", "inside": "/a", "magic": "/proc/self/root", "etc/up": "../../../../outside", "dangling": "/nowhere/x",
	} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(top, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func (r *Root) at(name string) string { return filepath.Join(r.directory.Name(), name) }

func write(t *testing.T, r *Root, name, text string) {
	t.Helper()
	if err := os.WriteFile(r.at(name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreReadInsideOfTheRoot(t *testing.T) {
	root := newRoot(t)
	write(t, root, "a/b/c", "content")
	for name, test := range map[string]struct {
		path string
		want error
	}{
		"a file":                             {"/a/b/c", nil},
		"a path with links and dots":         {"/inside/../inside/./b/c", nil},
		"a path above the root":              {"/../../a/b/c", nil},
		"a link out of the root":             {"/up", agentwire.ErrNotFound},
		"a link far out of the root":         {"/etc/up", agentwire.ErrNotFound},
		"a link to a path that the host has": {"/absolute", agentwire.ErrNotFound},
		"a link to itself":                   {"/loop", agentwire.ErrInvalid},
		"a directory":                        {"/a", agentwire.ErrIsDirectory},
		"the root":                           {"/", agentwire.ErrIsDirectory},
		"a pipe":                             {"/pipe", agentwire.ErrNotFile},
		"a file below a file":                {"/a/b/c/d", agentwire.ErrInvalid},
		"a relative path":                    {"a/b/c", agentwire.ErrInvalid},
		"a path with a zero byte":            {"/a\x00b", agentwire.ErrInvalid},
		"a long path":                        {"/" + strings.Repeat("x/", unix.PathMax), agentwire.ErrInvalid},
		"a long name":                        {"/" + strings.Repeat("x", 300), agentwire.ErrInvalid},
	} {
		var got bytes.Buffer
		_, err := root.ReadFile(t.Context(), test.path, &got)
		if test.want == nil && (err != nil || got.String() != "content") || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %q, %v, want %v", name, &got, err, test.want)
		}
	}
	if err := os.Truncate(root.at("a/b/c"), agentwire.MaxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := root.ReadFile(t.Context(), "/a/b/c", io.Discard); !errors.Is(err, agentwire.ErrTooLarge) {
		t.Errorf("a large file: %v", err)
	}
}

func TestFilesAreWrittenInsideOfTheRoot(t *testing.T) {
	root := newRoot(t)
	write(t, root, "a/old", "old")
	for name, test := range map[string]struct {
		path, at string
		mode     os.FileMode
		want     os.FileMode
	}{
		"a new file":                      {"/a/new", "a/new", 0, 0o644},
		"one with its mode":               {"/a/mode", "a/mode", 0o4751, 0o751},
		"one over another":                {"/a/old", "a/old", 0, 0o755},
		"one over a link out of the root": {"/up", "up", 0, 0o644},
		"one over a pipe":                 {"/pipe", "pipe", 0, 0o644},
		"one with missing parents":        {"/inside/x/y/z", "a/x/y/z", 0o600, 0o600},
	} {
		n, err := root.WriteFile(t.Context(), test.path, test.mode.Perm(), strings.NewReader("content"))
		info, statErr := os.Lstat(root.at(test.at))
		text, _ := os.ReadFile(root.at(test.at))
		if err != nil || n != 7 || statErr != nil || info.Mode() != test.want || string(text) != "content" {
			t.Errorf("%s: %d, %v: %v, %v, %q", name, n, err, info, statErr, text)
		}
	}
	outside, err := os.ReadFile(filepath.Join(root.at(".."), "outside"))
	if err != nil || string(outside) != "outside" {
		t.Errorf("the file outside has %q, %v", outside, err)
	}
}

func TestFileThatCannotBeWrittenLeavesNothing(t *testing.T) {
	root := newRoot(t)
	write(t, root, "a/old", "old")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("called off"))
	for name, test := range map[string]struct {
		ctx  context.Context
		path string
		in   io.Reader
		want string
	}{
		"over a directory":         {t.Context(), "/a", strings.NewReader("x"), "it is a directory"},
		"over the root":            {t.Context(), "/", strings.NewReader("x"), "it is a directory"},
		"below a file":             {t.Context(), "/a/old/x", strings.NewReader("x"), "not a directory"},
		"below a dangling link":    {t.Context(), "/dangling/x", strings.NewReader("x"), "no such file"},
		"from a reader that fails": {t.Context(), "/a/x", io.MultiReader(strings.NewReader("x"), failing{}), "broken off"},
		"when it is called off":    {ended, "/a/old", strings.NewReader("x"), "called off"},
	} {
		if _, err := root.WriteFile(test.ctx, test.path, 0, test.in); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	found, err := filepath.Glob(root.at("a/*"))
	hidden, _ := filepath.Glob(root.at("*/.smolvm*"))
	if diff := cmp.Diff([]string{root.at("a/b"), root.at("a/old")}, append(found, hidden...)); diff != "" || err != nil {
		t.Errorf("what is there differs: %s", diff)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken off") }

func TestPlacesForMountsAreDirectories(t *testing.T) {
	root := newRoot(t)
	top, err := root.open("/", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for _, name := range []string{"up", "inside", "loop", "pipe", "a", "missing"} {
		place, err := place(top, name)
		if err != nil {
			t.Fatal(err)
		}
		place.Close()
		if info, err := os.Lstat(root.at(name)); err != nil || !info.IsDir() {
			t.Errorf("%s is %v, %v", name, info, err)
		}
	}
	if _, err := os.Stat(root.at("a/b")); err != nil {
		t.Errorf("a directory was replaced: %v", err)
	}
}

func TestProgramsAreFoundInsideOfTheRoot(t *testing.T) {
	root := newRoot(t)
	write(t, root, "bin/tool", "x")
	write(t, root, "a/tool", "x")
	write(t, root, "a/plain", "x")
	if err := os.Chmod(root.at("a/plain"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		program, want string
		code          int
	}{
		"the first of the path":       {"tool", "/a/tool", 0},
		"a path":                      {"/bin/tool", "/bin/tool", 0},
		"a path beside the directory": {"../bin/tool", "/bin/tool", 0},
		"a program of the host":       {"/etc/hosts", "", agentwire.ExitNotFound},
		"a name that is nowhere":      {"nosuch", "", agentwire.ExitNotFound},
		"no name":                     {"", "", agentwire.ExitNotFound},
		"a file that is no program":   {"plain", "", agentwire.ExitNotExecutable},
		"a directory":                 {"/a", "", agentwire.ExitNotExecutable},
		"a link out of the root":      {"/up", "", agentwire.ExitNotFound},
	} {
		got, err := root.program(test.program, "/nowhere:/a:/bin", "/a")
		var because *cannotRun
		if errors.As(err, &because) != (test.code != 0) || because != nil && because.code != test.code || err == nil && got != test.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
