package jail

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// lastCapability is beyond the last capability of any kernel; unknown ones result in EINVAL.
const lastCapability = 63

// dropCapabilities removes all capabilities except those of the jail from what the thread's children can ever have. A
// child that changes to another user loses its permitted ones (capabilities(7)); one that stays root gets the bounding
// set by executing a program.
func (j Jail) dropCapabilities() error {
	for c := uintptr(0); c <= lastCapability; c++ {
		if slices.Contains(j.Capabilities, c) {
			continue
		}
		switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
		case err == nil:
		case errors.Is(err, unix.EINVAL):
			return j.clearInherited()
		case errors.Is(err, unix.EPERM) && j.User != 0:
			// Without CAP_SETPCAP the bounding set stays. With no_new_privs nothing can gain from it.
			return j.clearInherited()
		default:
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	return j.clearInherited()
}

// clearInherited empties the inheritable set, and with it the ambient set, which a container runtime may have filled.
func (j Jail) clearInherited() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("giving up inheritable capabilities: %w", err)
	}
	return nil
}
