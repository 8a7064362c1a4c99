package qmp_test

import (
	"errors"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// How guests change their size at each query.
var (
	towards = func(actual, target int64) int64 { return actual + min(mib, max(-mib, target-actual)) }
	atOnce  = func(_, target int64) int64 { return target }
	never   = func(actual, _ int64) int64 { return actual }
)

const mib = int64(1) << 20

func TestSetMemory(t *testing.T) {
	for name, test := range map[string]struct {
		inflate       func(actual, target int64) int64
		bytes, actual int64
		silent        bool
	}{
		"all at once":                     {atOnce, 256 * mib, 256 * mib, false},
		"step by step":                    {towards, 508 * mib, 508 * mib, false},
		"more than there is":              {towards, 1024 * mib, 512 * mib, false},
		"a part of a page is a page more": {atOnce, 256*mib + 1, 256*mib + 4096, false},
		"the guest has no driver":         {never, 256 * mib, 512 * mib, true},
		"the guest stops half way": {
			func(actual, _ int64) int64 { return max(actual-mib, 509*mib) }, 256 * mib, 509 * mib, true,
		},
		"the guest goes to and fro": {
			func(actual, _ int64) int64 { return 1011*mib - actual }, 256 * mib, 0, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{ram: 512 * mib, actual: 512 * mib, target: 512 * mib, inflate: test.inflate}
			if test.silent {
				m.patience = short
			}
			actual, err := m.run(t).SetMemory(t.Context(), test.bytes)
			if errors.Is(err, qmp.ErrGuestSilent) != test.silent || (err != nil) != test.silent {
				t.Errorf("it returns the error %v", err)
			}
			if test.actual != 0 && actual != test.actual {
				t.Errorf("it returns %d; want %d", actual, test.actual)
			}
		})
	}
}
