package qemu

import (
	"slices"
	"time"
)

// Clock is the guest's real-time clock.
type Clock struct {
	// Base is its time when QEMU starts: utc (also if empty), localtime, which some guests expect, or a date such as
	// 2006-06-17 or 2006-06-17T16:01:21.
	Base string
	// Clock is what drives it: host, which is QEMU's default and follows corrections of the host's clock, rt, which does
	// not, or vm, which does not advance while the guest is stopped.
	Clock string
}

const (
	baseUTC   = "utc"
	baseLocal = "localtime"
)

func (m Machine) checkClock(found *FieldErrors) {
	base := m.Clock.Base
	found.unless(slices.Contains([]string{"", baseUTC, baseLocal}, base) || isDate(base), "Clock.Base",
		"%q is none of utc, localtime and a date such as 2006-06-17T16:01:21", base)
	found.unless(slices.Contains([]string{"", "host", "rt", "vm"}, m.Clock.Clock), "Clock.Clock", "%q is none of host, rt and vm", m.Clock.Clock)
}

// isDate reports whether QEMU takes the text for a date (system/rtc.c, configure_rtc_base_datetime).
func isDate(text string) bool {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05"} {
		if parsed, err := time.Parse(layout, text); err == nil && parsed.Format(layout) == text {
			return true
		}
	}
	return false
}

func (m Machine) clockOptions() []string {
	base := m.Clock.Base
	if base == "" {
		base = baseUTC
	}
	options := []string{"base=" + base}
	if m.Clock.Clock != "" {
		options = append(options, "clock="+m.Clock.Clock)
	}
	if !m.microVM() {
		options = append(options, "driftfix=slew")
	}
	return options
}
