package main

import (
	"encoding/json"
	"fmt"
	"slices"
)

// configuration is the configuration of the plugin itself.
type configuration struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	SubnetFile    string          `json:"subnetFile"`
	DataDir       string          `json:"dataDir"`
	IPAM          map[string]any  `json:"ipam"`
	Delegate      map[string]any  `json:"delegate"`
	RuntimeConfig map[string]any  `json:"runtimeConfig"`
	PrevResult    json.RawMessage `json:"prevResult"`
}

func parse(content []byte) (configuration, error) {
	c := configuration{SubnetFile: "/run/flannel/subnet.env", DataDir: "/var/lib/cni/flannel"}
	if err := json.Unmarshal(content, &c); err != nil {
		return c, fmt.Errorf("the plugin's configuration: %w", err)
	}
	for _, name := range []string{"name", "ipam"} {
		if _, ok := c.Delegate[name]; ok {
			return c, fmt.Errorf("the plugin's configuration: delegate must not have %q, which flannel sets", name)
		}
	}
	if plugin, ok := c.Delegate["type"]; ok {
		if _, ok := plugin.(string); !ok {
			return c, fmt.Errorf("the plugin's configuration: delegate.type is %v and not the name of a plugin", plugin)
		}
	}
	return c, nil
}

// delegated returns the configuration for the plugin that does the work: the user's settings in delegate, completed by
// what flanneld knows.
func (c configuration) delegated(s subnet) (map[string]any, error) {
	d := map[string]any{"type": "bridge", "mtu": s.mtu, "ipMasq": !s.masqueraded}
	for name, value := range c.Delegate {
		d[name] = value
	}
	d["name"] = c.Name
	if c.CNIVersion != "" {
		d["cniVersion"] = c.CNIVersion
	}
	if _, set := d["isGateway"]; !set && d["type"] == "bridge" {
		d["isGateway"] = true
	}
	if c.RuntimeConfig != nil {
		d["runtimeConfig"] = c.RuntimeConfig
	}
	ipam, err := c.addresses(s)
	d["ipam"] = ipam
	return d, err
}

// addresses assigns addresses of the host's subnet and adds routes to the whole pod network.
func (c configuration) addresses(s subnet) (map[string]any, error) {
	ipam := map[string]any{"type": "host-local"}
	for name, value := range c.IPAM {
		ipam[name] = value
	}
	var ranges [][]map[string]any
	for _, own := range s.subnets {
		ranges = append(ranges, []map[string]any{{"subnet": own.String()}})
	}
	ipam["ranges"] = ranges
	routes, ok := ipam["routes"].([]any)
	if _, set := ipam["routes"]; set && !ok {
		return nil, fmt.Errorf("the plugin's configuration: ipam.routes is not a list")
	}
	routes = slices.Clone(routes)
	for _, network := range s.networks {
		routes = append(routes, map[string]any{"dst": network.String()})
	}
	ipam["routes"] = routes
	return ipam, nil
}

func pluginOf(delegated map[string]any) string {
	plugin, _ := delegated["type"].(string)
	return plugin
}
