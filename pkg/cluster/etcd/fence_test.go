package etcd

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// TestAClosedFenceLetsMembersBeAskedAndNotChanged: a call that reaches the member gets a response, even if it is only
// Unimplemented.
func TestAClosedFenceLetsMembersBeAskedAndNotChanged(t *testing.T) {
	access := (&hostileMember{list: members(3, "etcd")}).serve(t)
	now := time.Minute
	f := fence.New("giantswarm/kvm-operator", time.Second, func() time.Duration { return now })
	c := dial(access, f)
	defer c.close()
	o, err := c.observe(t.Context())
	if err != nil || len(o.members) != 3 {
		t.Fatalf("through the closed fence: %d members, %v", len(o.members), err)
	}
	for _, action := range []Action{Add, Promote, Remove, MoveLeader, Compact, Defragment, Disarm} {
		step := Step{Action: action, Master: Master{PeerURL: "https://d:2380"}, Member: o.members[0], Successor: o.members[1]}
		if err := o.do(t.Context(), step); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s through the closed fence: %v", action, err)
		}
		f.Renewed(now)
		if err := o.do(t.Context(), step); grpcstatus.Code(err) != codes.Unimplemented {
			t.Errorf("%s through the open fence: %v, want the member's answer", action, err)
		}
		now += time.Second
	}
}
