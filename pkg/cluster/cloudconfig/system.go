package cloudconfig

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

// system is the operating system below Kubernetes: kernel, logs, time.
func system(p Params) parts {
	const journald = "[Journal]\nSystemMaxUse=500M\nRuntimeMaxUse=64M\n"
	all := parts{
		files: []file{
			{path: "/etc/modules-load.d/kvm-operator.conf", mode: modePublic, text: asset("modules.conf")},
			{path: "/etc/sysctl.d/90-kvm-operator.conf", mode: modePublic, text: asset("sysctl.conf")},
			// Its name sorts after all that images have: the kubelet does not start if one of these differs.
			{path: "/etc/sysctl.d/zz-kubelet.conf", mode: modePublic, text: asset("sysctl-kubelet.conf")},
			{path: "/etc/systemd/journald.conf.d/10-kvm-operator.conf", mode: modePublic, text: journald},
		},
		// Flatcar would update itself and reboot at any time; the operator replaces nodes instead.
		units: []types.Unit{{Name: "update-engine.service", Mask: new(true)}, {Name: "locksmithd.service", Mask: new(true)}},
	}
	if p.Emulated {
		all.files = append(all.files, services())
	}
	if servers := p.Settings.NTPServers; len(servers) > 0 {
		all.files = append(all.files, file{
			path: "/etc/systemd/timesyncd.conf.d/10-kvm-operator.conf", mode: modePublic,
			text: fmt.Sprintf("[Time]\nNTP=%s\n", strings.Join(servers, " ")),
		})
		all.units = append(all.units, types.Unit{Name: "systemd-timesyncd.service", Enabled: new(true)})
	}
	return all
}

// iscsi sets the node's name for iSCSI targets, as storage arrays of the original's users know it.
func iscsi(p Params) parts {
	name := fmt.Sprintf("iqn.2016-04.com.coreos.iscsi:giantswarm-%s-%s-%d", p.Cluster.ID, p.Node.Role, p.Node.Index)
	return parts{
		files: []file{
			{path: "/etc/iscsi/initiatorname.iscsi", mode: modePublic, text: "InitiatorName=" + name + "\n"},
			// https://github.com/kubernetes/kubernetes/issues/73181
			{path: "/etc/iscsi/iscsid.conf", mode: modePublic, text: "iscsid.safe_logout = Yes\n"},
		},
		// Enabling a unit that the image does not have does nothing.
		units: []types.Unit{{Name: "iscsid.service", Enabled: new(true)}, {Name: "multipathd.service", Enabled: new(true)}},
	}
}
