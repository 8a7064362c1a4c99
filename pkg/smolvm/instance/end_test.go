package instance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

func TestEnds(t *testing.T) {
	inUse := fmt.Errorf("publishing: %w", &usernet.PortInUseError{Protocol: "tcp", Port: 80})
	for text, c := range map[string]struct {
		end            keeper.End
		failure, cause error
		want           End
	}{
		"the guest's own shutdown": {end: keeper.End{Reason: keeper.ReasonGuestShutDown, Message: "m", By: "guest-shutdown"}, want: End{Reason: keeper.ReasonGuestShutDown, Message: "m"}},
		"a panic": {
			end:  keeper.End{Reason: keeper.ReasonGuestShutDown, Message: "m", By: "guest-reset"},
			want: End{Reason: keeper.ReasonGuestShutDown, Code: api.CodeInternal, Message: "the guest reset itself, as after a panic of its kernel; its console's last output may say why"},
		},
		"a stop":                {end: keeper.End{Reason: keeper.ReasonPoweredDown, Message: "m"}, cause: errStopped, want: End{Reason: keeper.ReasonPoweredDown, Message: "m"}},
		"a signal":              {end: keeper.End{Reason: keeper.ReasonPoweredDown, Message: "m"}, cause: errSignal, want: End{Reason: keeper.ReasonPoweredDown, Message: "m", Signal: true}},
		"a port in use":         {end: keeper.End{Reason: keeper.ReasonNetworkFailed, Message: "m"}, failure: inUse, want: End{Reason: keeper.ReasonNetworkFailed, Code: api.CodePortInUse, Message: inUse.Error()}},
		"a broken image":        {end: keeper.End{Reason: keeper.ReasonImageUnavailable, Message: "m"}, failure: ociimage.MalformedError{Reason: "r"}, want: End{Reason: keeper.ReasonImageUnavailable, Code: api.CodeImageMalformed, Message: ociimage.MalformedError{Reason: "r"}.Error()}},
		"a silent guest":        {end: keeper.End{Reason: keeper.ReasonGuestKilled, Message: "m"}, failure: api.Errorf(api.CodeTimeout, "silent"), want: End{Reason: keeper.ReasonGuestKilled, Code: api.CodeTimeout, Message: "silent"}},
		"a full disk":           {end: keeper.End{Reason: keeper.ReasonDiskFull, Message: "m"}, want: End{Reason: keeper.ReasonDiskFull, Code: api.CodeDiskFull, Message: "m"}},
		"no KVM":                {end: keeper.End{Reason: keeper.ReasonAccelerationUnavailable, Message: "m"}, want: End{Reason: keeper.ReasonAccelerationUnavailable, Code: api.CodeUnavailable, Message: "m"}},
		"a crash":               {end: keeper.End{Reason: keeper.ReasonQEMUCrashed, Message: "m"}, want: End{Reason: keeper.ReasonQEMUCrashed, Code: api.CodeInternal, Message: "m"}},
		"an image that is gone": {end: keeper.End{Reason: keeper.ReasonImageUnavailable, Message: "m"}, failure: errors.New("gone"), want: End{Reason: keeper.ReasonImageUnavailable, Code: api.CodeImagePullFailed, Message: "gone"}},
	} {
		if got := endOf(c.end, c.failure, c.cause); got != c.want {
			t.Errorf("%s: %+v, want %+v", text, got, c.want)
		}
	}
}
