package qmp_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

func TestChangesOfTheCD(t *testing.T) {
	change := func(file string) func(*qmp.Client, *testing.T) error {
		return func(c *qmp.Client, t *testing.T) error { return c.ChangeCD(t.Context(), "cd0", file) }
	}
	eject := func(c *qmp.Client, t *testing.T) error { return c.EjectCD(t.Context(), "cd0") }
	opens := func(m *machine, p *peer) {
		m.later(func() {
			m.drive.TrayOpen, m.drive.Locked = true, false
			p.event("DEVICE_TRAY_MOVED", `{"device": "drv", "tray-open": true, "id": "cd0"}`)
		})
	}
	stays := func(*machine, *peer) {}
	for name, test := range map[string]struct {
		drive      qmp.Drive
		eject      func(*machine, *peer)
		loseMedium bool
		do         func(*qmp.Client, *testing.T) error
		want       qmp.Drive
		refused    bool
		err        error
	}{
		"into an empty drive":   {do: change("b"), want: qmp.Drive{File: "b"}},
		"in place of another":   {drive: qmp.Drive{File: "a"}, do: change("b"), want: qmp.Drive{File: "b"}},
		"into an open drive":    {drive: qmp.Drive{TrayOpen: true}, do: change("b"), want: qmp.Drive{File: "b"}},
		"a missing image":       {drive: qmp.Drive{File: "a"}, do: change("missing"), want: qmp.Drive{File: "a"}, refused: true},
		"out of the drive":      {drive: qmp.Drive{File: "a"}, do: eject},
		"out of an empty drive": {do: eject},
		"out of an open drive":  {drive: qmp.Drive{File: "a", TrayOpen: true}, do: eject},
		"the guest opens the locked tray for a change": {
			drive: qmp.Drive{File: "a", Locked: true}, eject: opens, do: change("b"), want: qmp.Drive{File: "b"},
		},
		"the guest opens the locked tray to eject": {
			drive: qmp.Drive{File: "a", Locked: true}, eject: opens, do: eject,
		},
		"the guest opens the locked tray for a missing image": {
			drive: qmp.Drive{File: "a", Locked: true}, eject: opens, do: change("missing"), want: qmp.Drive{File: "a"}, refused: true,
		},
		"the guest keeps the tray locked": {
			drive: qmp.Drive{File: "a", Locked: true}, eject: stays, do: change("b"), want: qmp.Drive{File: "a", Locked: true},
			err: qmp.ErrGuestSilent,
		},
		"the medium is not there after a success": {
			do: change("b"), loseMedium: true, err: qmp.ErrUnobserved,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{drive: test.drive, eject: test.eject, loseMedium: test.loseMedium}
			if errors.Is(test.err, qmp.ErrGuestSilent) {
				m.patience = short
			}
			err := test.do(m.run(t), t)
			var refusal *qmp.CommandError
			if errors.As(err, &refusal) != test.refused || !errors.Is(err, test.err) && !test.refused {
				t.Errorf("it returns %v; want %v", err, test.err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if diff := cmp.Diff(test.want, m.drive); diff != "" {
				t.Errorf("the drive differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownDriveIsNotFound(t *testing.T) {
	c := new(machine).run(t)
	for name, err := range map[string]error{
		"change": c.ChangeCD(t.Context(), "cd9", "b"), "eject": c.EjectCD(t.Context(), "cd9"),
	} {
		var refusal *qmp.CommandError
		if !errors.As(err, &refusal) || refusal.Class != qmp.ClassDeviceNotFound {
			t.Errorf("%s returns %v", name, err)
		}
	}
}
