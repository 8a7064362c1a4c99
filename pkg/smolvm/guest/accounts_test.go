package guest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n:x:1:1:::\nshort:x:5\nweb:x:33:44:web:/srv:/bin/false\nhuge:x:4294967296:0::/:\nlast:x:7:8::/last:"
	group  = "root:x:0:\nweb:x:44:\nmedia:x:55:other,web\nmore:x:66:web\nbroken:x:y:web\n"
)

func TestAccountsAreThoseOfTheImage(t *testing.T) {
	for name, test := range map[string]struct {
		user string
		want account
	}{
		"nothing is root":                   {"", account{home: "/root"}},
		"a name":                            {"web", account{33, 44, []uint32{55, 66}, "/srv"}},
		"its number":                        {"33", account{33, 44, []uint32{55, 66}, "/srv"}},
		"a number without an entry":         {"1000", account{uid: 1000}},
		"a name with a group":               {"web:media", account{33, 55, nil, "/srv"}},
		"a name with the number of a group": {"web:55", account{33, 55, nil, "/srv"}},
		"numbers without entries":           {"1000:2000", account{uid: 1000, gid: 2000}},
		"a name with an empty group":        {"web:", account{33, 44, []uint32{55, 66}, "/srv"}},
		"a group alone is root's":           {":web", account{gid: 44, home: "/root"}},
		"the last line without its end":     {"last", account{7, 8, nil, "/last"}},
		"the largest number":                {"2147483647", account{uid: 2147483647}},
	} {
		got, err := findAccount(test.user, passwd, group)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(account{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, user := range []string{"nosuch", "huge", "short", "2147483648", "-1", "web:nosuch", "web:broken", "web:4294967296"} {
		if got, err := findAccount(user, passwd, group); !errors.Is(err, agentwire.ErrNotFound) {
			t.Errorf("%s: %+v, %v", user, got, err)
		}
	}
}

func TestImageWithoutAccountsHasNumbers(t *testing.T) {
	root := newRoot(t)
	if got, err := root.account("5:6"); err != nil || got.uid != 5 || got.gid != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	write(t, root, "etc/passwd", strings.Repeat("x", maxAccounts+1))
	if _, err := root.account("5"); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("a large /etc/passwd: %v", err)
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add("web:media", passwd, group)
	f.Fuzz(func(t *testing.T, user, passwd, group string) {
		a, err := findAccount(user, passwd, group)
		if err == nil && (a.uid > maxID || a.gid > maxID || len(a.groups) > maxGroups) {
			t.Errorf("%+v", a)
		}
	})
}

func TestStopSignals(t *testing.T) {
	for name, want := range map[string]unix.Signal{
		"": unix.SIGTERM, "SIGQUIT": unix.SIGQUIT, "quit": unix.SIGQUIT, "9": unix.SIGKILL, "SIGRTMIN": 34, "SIGRTMIN+3": 37, "RTMIN+30": 64,
	} {
		if got, err := stopSignal(name); err != nil || got != want {
			t.Errorf("%s is signal %d, %v", name, got, err)
		}
	}
	for _, name := range []string{"SIGNONE", "0", "65", "-1", "RTMIN+31", "RTMIN-1", "RTMINx"} {
		if got, err := stopSignal(name); err == nil {
			t.Errorf("%s is signal %d", name, got)
		}
	}
}
