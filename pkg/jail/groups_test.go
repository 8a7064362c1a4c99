package jail

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDeviceIsOpenedByItsGroup: where the program sees the device of its container and not one of its own.
func TestDeviceIsOpenedByItsGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	for name, test := range map[string]struct {
		group int
		mode  os.FileMode
		want  []uint32
	}{
		"as Debian has /dev/kvm":            {group: 108, mode: 0o660, want: []uint32{108}},
		"everybody may, so the group may":   {group: 108, mode: 0o666, want: []uint32{108}},
		"the group may read only":           {group: 108, mode: 0o640},
		"the group is root's":               {group: 0, mode: 0o660},
		"the device belongs to nobody else": {group: 108, mode: 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kvm")
			for _, err := range []error{os.WriteFile(path, nil, 0o600), os.Chown(path, 0, test.group), os.Chmod(path, test.mode)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, groupsOf(path)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := groupsOf("/nonexistent/kvm"); got != nil {
		t.Errorf("a device that is not there has the groups %v", got)
	}
}
