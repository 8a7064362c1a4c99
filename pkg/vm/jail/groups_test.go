package jail

import (
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDeviceIsOpenedByItsGroup covers a program that sees the device of its container and not one of its own.
func TestDeviceIsOpenedByItsGroup(t *testing.T) {
	for name, test := range map[string]struct {
		group uint32
		mode  fs.FileMode
		want  []uint32
	}{
		"as Debian has /dev/kvm":          {group: 108, mode: 0o660, want: []uint32{108}},
		"all users may, so the group may": {group: 108, mode: 0o666, want: []uint32{108}},
		"the group may read only":         {group: 108, mode: 0o640},
		"the group is root's":             {group: 0, mode: 0o660},
		"only the owner may":              {group: 108, mode: 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, groupsFor(fs.ModeDevice|test.mode, test.group)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := groupsOf("/nonexistent/kvm"); got != nil {
		t.Errorf("a device that is not there has the groups %v", got)
	}
}
