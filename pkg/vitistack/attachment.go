package vitistack

import (
	"encoding/json"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// AttachmentConfig returns spec.config of the NetworkAttachmentDefinition of a NetworkConfiguration, a list of CNI plugins
// (https://www.cni.dev/docs/spec/#configuration-format) with the bridge plugin, and false if it needs none. A network
// without a VLAN is untagged, and one without a bridge is on br0.
func AttachmentConfig(nc *v1alpha1.NetworkConfiguration, cniVersion string) (config string, needed bool) {
	if !Attaches(nc) {
		return "", false
	}
	type plugin struct {
		Type   string   `json:"type"`
		Bridge string   `json:"bridge"`
		IPAM   struct{} `json:"ipam"`
		VLAN   int32    `json:"vlan,omitempty"`
	}
	bridge := nc.Spec.Bridge
	if bridge == "" {
		bridge = "br0"
	}
	text, err := json.Marshal(struct {
		CNIVersion string   `json:"cniVersion"`
		Name       string   `json:"name"`
		Plugins    []plugin `json:"plugins"`
	}{cniVersion, bridge, []plugin{{Type: "bridge", Bridge: bridge, VLAN: nc.Spec.VLAN}}})
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return string(text), true
}
