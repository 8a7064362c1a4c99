package cmd

import (
	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// egress returns what guests may reach.
func egress(r reader) state.Egress {
	return state.Egress{
		Open: !r.yes(flag.EgressRestricted), HostCIDRs: r.list(flag.InstallationHostCIDRs), Allowed: r.list(flag.EgressAllowed),
	}
}
