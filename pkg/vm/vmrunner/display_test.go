package vmrunner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestSecretOfADisplay: everything but a valid Secret locks the display, and no error has a password.
func TestSecretOfADisplay(t *testing.T) {
	const password = "geheim"
	file := func(text string) *string { return &text }
	for name, test := range map[string]struct {
		password, expiry *string
		want             access
		wrong            string
	}{
		"no Secret":                {wrong: "display-password in it, is missing"},
		"no password":              {expiry: file("never"), wrong: "display-password in it, is missing"},
		"an empty password":        {password: file(""), wrong: "1 to 60 bytes"},
		"a long password":          {password: file(strings.Repeat(password, 10) + "x"), wrong: "1 to 60 bytes"},
		"the longest password":     {password: file(strings.Repeat(password, 10)), want: access{strings.Repeat(password, 10), "never"}},
		"a password":               {password: file(password), want: access{password, "never"}},
		"a password, and a line":   {password: file(password + "\n"), wrong: "a line break at its end"},
		"a password of bytes":      {password: file(password + "\xff"), wrong: "something else than text"},
		"a password in Greek":      {password: file("κωδικός"), want: access{"κωδικός", "never"}},
		"never":                    {password: file(password), expiry: file("never\n"), want: access{password, "never"}},
		"now":                      {password: file(password), expiry: file("now"), want: access{password, "now"}},
		"in some time":             {password: file(password), expiry: file("+30"), want: access{password, "+30"}},
		"at a time":                {password: file(password), expiry: file("1800000000"), want: access{password, "1800000000"}},
		"no expiry that QEMU has":  {password: file(password), expiry: file("tomorrow"), wrong: "none of now, never"},
		"an empty expiry":          {password: file(password), expiry: file(""), wrong: "none of now, never"},
		"a negative expiry":        {password: file(password), expiry: file("-1"), wrong: "none of now, never"},
		"an expiry of many digits": {password: file(password), expiry: file(strings.Repeat("9", 13)), wrong: "none of now, never"},
		"an endless expiry":        {password: file(password), expiry: file(strings.Repeat("9", 1<<20)), wrong: "none of now, never"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			for key, text := range map[string]*string{vmconfig.DisplayPassword: test.password, vmconfig.DisplayExpiry: test.expiry} {
				if text != nil {
					write(t, filepath.Join(directory, key), *text)
				}
			}
			got, err := readAccess(directory)
			if got != test.want || (err == nil) != (test.wrong == "") {
				t.Errorf("it is %+v, %v; want %+v, %q", got, err, test.want, test.wrong)
			}
			if err != nil && (!strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), password)) {
				t.Errorf("the error is %q, want %q and no password", err, test.wrong)
			}
		})
	}
	if _, err := readAccess(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a volume that is not there does not lock the display")
	}
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, vmconfig.DisplayPassword), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := readAccess(directory); err == nil {
		t.Error("a password that is a directory does not lock the display")
	}
}

// TestDisplayIsServedWhereAPasswordAllows: without a password, only `kubectl port-forward` reaches it.
func TestDisplayIsServedWhereAPasswordAllows(t *testing.T) {
	s := example(t)
	if s.screen() != nil || s.hasPassword() {
		t.Error("a machine without a display has one")
	}
	s.Machine.Display = &vmconfig.Display{Outputs: 2, SPICE: &vmconfig.SPICE{Port: 5900, USBRedirects: 16}}
	open := s.screen()
	if open.SPICE.Address.IsValid() || open.Password || open.SPICE.USBRedirects != 14 || open.Outputs != 2 {
		t.Errorf("without a password, it is %+v, %+v", open, open.SPICE)
	}
	s.Machine.Display.SPICE.Password = true
	if d := s.screen(); !d.Password || !d.SPICE.Address.IsUnspecified() {
		t.Errorf("with a password, it is %+v, %+v", d, d.SPICE)
	}
	s.Display = ""
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "password of the display") {
		t.Errorf("without a directory for the password: %v", err)
	}
}

// TestViewerIsKnownByItsMainChannel, because QEMU reports every channel of a viewer.
func TestViewerIsKnownByItsMainChannel(t *testing.T) {
	s := example(t)
	s.Machine.Display = &vmconfig.Display{SPICE: &vmconfig.SPICE{Port: 5900}}
	d := newDisplay(s, nil, &news{})
	for _, step := range []struct{ event, host, port, kind, want string }{
		{qmp.EventSPICEInitialized, "192.0.2.1", "1000", "1", "192.0.2.1"},
		{qmp.EventSPICEInitialized, "192.0.2.1", "1001", "2", "192.0.2.1"},
		{qmp.EventSPICEDisconnected, "192.0.2.1", "1001", "0", "192.0.2.1"},
		{qmp.EventSPICEInitialized, "192.0.2.2", "1000", "1", "192.0.2.2"},
		{qmp.EventSPICEDisconnected, "192.0.2.1", "1000", "0", "192.0.2.2"},
		{qmp.EventSPICEDisconnected, "192.0.2.2", "1000", "0", ""},
	} {
		d.see(qmp.Event{Name: step.event, Data: []byte(`{"client":{"host":"` + step.host + `","port":"` + step.port + `","channel-type":` + step.kind + `}}`)})
		var r vmconfig.Report
		if d.report(&r); r.Display.Client != step.want || r.Display.Serial != -1 {
			t.Errorf("after %+v: %+v", step, r.Display)
		}
	}
}
