package keeper

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryFailureHasACodeOfItsOwn(t *testing.T) {
	owner := map[int]Reason{}
	for reason, code := range codes {
		if reason == ReasonPoweredDown || reason == ReasonGuestShutDown {
			if code != 0 {
				t.Errorf("%s is no failure and has the code %d", reason, code)
			}
			continue
		}
		if code == 0 || owner[code] != "" {
			t.Errorf("%s has the code %d, which is that of %q", reason, code, owner[code])
		}
		owner[code] = reason
	}
}

func TestEndOf(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want End
	}{
		"an error without a reason": {errors.New("x"), End{Reason: ReasonInternal, Message: "x"}},
		"an error with one":         {Because(ReasonDiskFull, errors.New("x")), End{Reason: ReasonDiskFull, Message: "x"}},
		"the first reason wins":     {Because(ReasonInternal, Because(ReasonDiskFull, errors.New("x"))), End{Reason: ReasonDiskFull, Message: "x"}},
		"a wrapped reason":          {fmt.Errorf("making disks: %w", Failf(ReasonDiskLocked, "%s is locked", "/d")), End{Reason: ReasonDiskLocked, Message: "making disks: /d is locked"}},
		"a joined reason":           {errors.Join(errors.New("y"), Failf(ReasonDiskLocked, "x")), End{Reason: ReasonDiskLocked, Message: "y\nx"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, EndOf(test.err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if Because(ReasonInternal, nil) != nil {
		t.Error("no error is an error because of something")
	}
}
