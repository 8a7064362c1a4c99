package flag

import "github.com/spf13/pflag"

// Keys of the settings that say what guests may reach and use.
const (
	InstallationHostCIDRs = "service.installation.hostcidrs"
	EgressRestricted      = "service.egress.restricted"
	EgressAllowed         = "service.egress.allowed"
	IngressAllowedDomains = "service.ingress.alloweddomains"
	MachineForeignSources = "service.machine.foreignsources"
)

func registerTenants(fs *pflag.FlagSet) {
	fs.StringSlice(InstallationHostCIDRs, nil, "networks of the hosts of the management cluster; with them, guests do not reach hosts")
	fs.Bool(EgressRestricted, true, "keep guests from the management cluster's pods, Services, hosts and metadata addresses, as far as these are known")
	fs.StringSlice(EgressAllowed, nil, "networks in the management cluster that guests may reach, such as those of registries and proxies")
	fs.StringSlice(IngressAllowedDomains, nil, "domains in which the hosts of Ingresses have to be; empty for any")
	fs.Bool(MachineForeignSources, false, "let guests send with addresses that are not their own, for networks of workload clusters that route pods without encapsulation")
}
