package live_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// image creates a medium.
func image(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	do(t, os.WriteFile(path, make([]byte, 64<<10), 0o600))
	return path
}

func (g *guest) hasCD(t *testing.T, id string, want qmp.Drive) {
	t.Helper()
	got, err := g.Drive(t.Context(), id)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the drive differs, error %v (-want +got):\n%s", err, diff)
	}
}

func TestCDIsChangedAndEjected(t *testing.T) {
	t.Parallel()
	first, second := image(t, "first.iso"), image(t, "second, with comma.iso")
	m := bare()
	m.CDs = []qemu.CD{{ID: "cd0", Path: first}, {ID: "cd1"}}
	g := start(t, m)
	moves := g.Subscribe(qmp.EventTrayMoved)
	moved := func(id string, states ...bool) {
		t.Helper()
		for _, open := range states {
			if got := next[trayMoved](t, moves, qmp.EventTrayMoved); got != (trayMoved{ID: id, Open: open}) {
				t.Errorf("the tray moved: %+v; want %s open %t", got, id, open)
			}
		}
	}
	g.hasCD(t, "cd0", qmp.Drive{File: first})
	g.hasCD(t, "cd1", qmp.Drive{})

	do(t, g.ChangeCD(t.Context(), "cd0", second))
	moved("cd0", true, false)
	g.hasCD(t, "cd0", qmp.Drive{File: second})
	do(t, g.ChangeCD(t.Context(), "cd1", first))
	moved("cd1", true, false)
	g.hasCD(t, "cd1", qmp.Drive{File: first})

	refused(t, "a missing image", g.ChangeCD(t.Context(), "cd0", first+".missing"), "No such file or directory")
	refused(t, "an unknown protocol", g.ChangeCD(t.Context(), "cd0", "gopher://localhost/x"), "Unknown protocol 'gopher'")
	refused(t, "an unknown drive", g.ChangeCD(t.Context(), "cd9", first), "there is no drive cd9")
	g.hasCD(t, "cd0", qmp.Drive{File: second})

	do(t, g.OpenTray(t.Context(), "cd0"))
	do(t, g.OpenTray(t.Context(), "cd0"))
	moved("cd0", true)
	g.hasCD(t, "cd0", qmp.Drive{File: second, TrayOpen: true})
	do(t, g.EjectCD(t.Context(), "cd0"))
	moved("cd0", false)
	g.hasCD(t, "cd0", qmp.Drive{})
	do(t, g.EjectCD(t.Context(), "cd0"))
	moved("cd0", true, false)
	refused(t, "taking from a closed tray", g.RemoveMedium(t.Context(), "cd1"), "Tray of device 'cd1' is not open")
	do(t, g.EjectCD(t.Context(), "cd1"))
	moved("cd1", true, false)
	g.hasCD(t, "cd1", qmp.Drive{})
}
