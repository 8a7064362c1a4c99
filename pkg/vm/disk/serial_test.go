package disk

import (
	"regexp"
	"strings"
	"testing"
)

func TestSerialNumberIsTheNameWhereItFits(t *testing.T) {
	for _, name := range []string{"system-disk", "12345678901234567890"} {
		if got := Serial(name); got != name {
			t.Errorf("the disk %s has the serial number %s", name, got)
		}
	}
}

func TestLongNamesHaveSerialNumbersOfTheirOwn(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z0-9-]{20}$`)
	seen := map[string]string{}
	for _, name := range []string{"123456789012345678901", "a-disk-with-a-long-name-1", "a-disk-with-a-long-name-2", strings.Repeat("x", 58)} {
		serial := Serial(name)
		if !valid.MatchString(serial) || !strings.HasPrefix(serial, name[:9]) || Serial(name) != serial {
			t.Errorf("the disk %s has the serial number %q", name, serial)
		}
		if other, ok := seen[serial]; ok {
			t.Errorf("the disks %s and %s have one serial number", name, other)
		}
		seen[serial] = name
	}
}
