package cloudinit

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// linksHead is a boot hook, which cloud-init runs at each boot, before its modules. A cloud-config would not do:
// where both have write_files or runcmd, cloud-init takes the list of the user data and drops that of the vendor data
// (canonical/cloud-init#6933). The rules are in /etc, so that from the second boot on /etc/fstab can name the links.
const (
	linksHead = `#cloud-boothook
#!/bin/sh
# The disks of this machine are /dev/<name>, by their serial numbers.
command -v udevadm >/dev/null || exit 0
mkdir -p /etc/udev/rules.d
cat >/etc/udev/rules.d/90-kvm-operator-disks.rules <<'END'
`
	linkRules = `SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{serial}=="%[1]s", SYMLINK+="%[2]s"
SUBSYSTEM=="block", ENV{DEVTYPE}=="partition", ATTRS{serial}=="%[1]s", SYMLINK+="%[2]s-part%%n"
`
	linksTail = `END
udevadm control --reload
udevadm trigger --subsystem-match=block --action=change
udevadm settle --timeout=10
`
)

// diskName matches names that need no escapes in a rule of udev(7).
var diskName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// DiskLinks returns vendor data with which a Linux guest that has udev finds each of its disks as /dev/<name>, and their
// partitions as /dev/<name>-part<n>. A disk has the serial number disk.Serial(name).
func DiskLinks(names ...string) ([]byte, error) {
	if len(names) == 0 {
		return nil, nil
	}
	text := bytes.NewBufferString(linksHead)
	for _, name := range names {
		if !diskName.MatchString(name) {
			return nil, fmt.Errorf("the name of a disk is %q, and has to be letters, digits, '.', '_' or '-'", name)
		}
		fmt.Fprintf(text, linkRules, disk.Serial(name), name)
	}
	text.WriteString(linksTail)
	return text.Bytes(), nil
}
