package cloudconfig

import (
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

const (
	// scriptDirectory contains the scripts of this package.
	scriptDirectory = "/opt/kvm-operator"
	// runDirectory contains what is found out at each boot.
	runDirectory = "/run/kvm-operator"
	// searchPath is where binaries are searched: downloaded ones and those added by hand come first.
	searchPath = "/opt/bin:/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/sbin:/bin"
)

// nodeEnvironment finds out what is known only after boot: the node's address, where the resolver's configuration is,
// and which CNI plugins the image contains.
func nodeEnvironment(p Params) parts {
	families := "4 6"
	if p.ipv6() {
		families = "6 4"
	}
	return parts{
		files: []file{{path: scriptDirectory + "/node-environment", mode: modeExecutable, text: asset("node-environment.sh")}},
		units: []types.Unit{service("k8s-node-environment.service", fmt.Sprintf(nodeEnvironmentUnit, families, searchPath, cniDirectory))},
	}
}

const nodeEnvironmentUnit = `[Unit]
Description=Find the node's address
Wants=network-online.target
After=network-online.target systemd-resolved.service

[Service]
Type=oneshot
RemainAfterExit=yes
RuntimeDirectory=kvm-operator
RuntimeDirectoryPreserve=yes
Environment="FAMILIES=%s" "PATH=%s" CNI_DIRECTORY=%s
ExecStart=/opt/kvm-operator/node-environment
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
`
