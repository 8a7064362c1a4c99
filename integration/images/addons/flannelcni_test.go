package addons_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorder is a plugin that writes its configuration to a file with the name of the command.
const recorder = `#!/bin/sh
cat >"$RECORD/$CNI_COMMAND"
echo '{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.244.1.5/24"}]}'
`

const subnetFile = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"

// plugin is the CNI plugin flannel, with other plugins that only record their input.
type plugin struct{ program, directory string }

func newPlugin(t *testing.T, subnet string, others ...string) plugin {
	t.Helper()
	p := plugin{program: tool(t, "flannel-cni"), directory: t.TempDir()}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(p.directory, name), []byte(recorder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if subnet != "" {
		writeFile(t, filepath.Join(p.directory, "subnet.env"), subnet)
	}
	return p
}

// call runs a command of the CNI specification.
func (p plugin) call(t *testing.T, command, config string) (output string, err error) {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	c["name"], c["type"] = "cbr0", "flannel"
	c["subnetFile"], c["dataDir"] = filepath.Join(p.directory, "subnet.env"), filepath.Join(p.directory, "data")
	stdin, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), p.program)
	run.Stdin = strings.NewReader(string(stdin))
	run.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=container1", "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0",
		"CNI_PATH=" + p.directory, "RECORD=" + p.directory, "PATH=" + os.Getenv("PATH"),
		// Otherwise the plugin rejects the namespace of its caller. The recorder does not enter it.
		"CNI_NETNS_OVERRIDE=1",
	}
	out, err := run.Output()
	return string(out), err
}

// recorded returns the input of the other plugin.
func (p plugin) recorded(t *testing.T, command string) map[string]any {
	t.Helper()
	return decode(t, readFile(t, filepath.Join(p.directory, command)))
}

func decode(t *testing.T, content string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(content), &m); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	return m
}

func TestFlannelPluginPassesTheSubnetOn(t *testing.T) {
	tests := map[string]struct {
		subnet, config, want string
		other                string
	}{
		"by the configuration of flannel's own manifest": {
			subnet: subnetFile, other: "bridge",
			config: `{"cniVersion": "0.3.1", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}`,
			want: `{"cniVersion": "0.3.1", "name": "cbr0", "type": "bridge", "hairpinMode": true, "isDefaultGateway": true, "isGateway": true,
				"ipMasq": false, "mtu": 1450,
				"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]], "routes": [{"dst": "10.244.0.0/16"}]}}`,
		},
		"masquerading where flanneld does not": {
			subnet: strings.Replace(subnetFile, "IPMASQ=true", "IPMASQ=false", 1), other: "bridge",
			config: `{"cniVersion": "1.0.0"}`,
			want: `{"cniVersion": "1.0.0", "name": "cbr0", "type": "bridge", "isGateway": true, "ipMasq": true, "mtu": 1450,
				"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]], "routes": [{"dst": "10.244.0.0/16"}]}}`,
		},
		"of both families, to another plugin that gets more settings": {
			subnet: subnetFile + "FLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\n", other: "ptp",
			config: `{"cniVersion": "1.0.0", "delegate": {"type": "ptp", "mtu": 1300, "ipMasq": true}, "runtimeConfig": {"a": "b"},
				"ipam": {"dataDir": "/run/ipam", "routes": [{"dst": "0.0.0.0/0"}]}}`,
			want: `{"cniVersion": "1.0.0", "name": "cbr0", "type": "ptp", "ipMasq": true, "mtu": 1300, "runtimeConfig": {"a": "b"},
				"ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:244:0:1::/64"}]],
					"routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.244.0.0/16"}, {"dst": "fd00:244::/48"}]}}`,
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			p := newPlugin(t, test.subnet, test.other)
			output, err := p.call(t, "ADD", test.config)
			if err != nil {
				t.Fatal(err, output)
			}
			if diff := cmp.Diff(decode(t, test.want), p.recorded(t, "ADD")); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(output, "10.244.1.5/24") {
				t.Errorf("the answer of the other plugin is lost: %s", output)
			}
		})
	}
}

func TestFlannelPluginRemovesWhatItHasAdded(t *testing.T) {
	p := newPlugin(t, subnetFile, "bridge")
	const config = `{"cniVersion": "0.3.1"}`
	if output, err := p.call(t, "ADD", config); err != nil {
		t.Fatal(err, output)
	}
	// The host has got another subnet since then.
	writeFile(t, filepath.Join(p.directory, "subnet.env"), strings.ReplaceAll(subnetFile, "10.244.1.", "10.244.9."))
	if output, err := p.call(t, "DEL", config); err != nil {
		t.Fatal(err, output)
	}
	if diff := cmp.Diff(p.recorded(t, "ADD"), p.recorded(t, "DEL")); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(filepath.Join(p.directory, "DEL")); err != nil {
		t.Fatal(err)
	}
	if output, err := p.call(t, "DEL", config); err != nil {
		t.Errorf("the second removal: %v %s", err, output)
	}
	if _, err := os.Stat(filepath.Join(p.directory, "DEL")); err == nil {
		t.Error("the second removal was passed on")
	}
}

func TestFlannelPluginSaysWhyNot(t *testing.T) {
	tests := map[string]struct{ subnet, config, want string }{
		"flanneld is not ready":           {"", `{"cniVersion": "0.3.1"}`, "flanneld has not written its subnet yet"},
		"half a subnet file":              {"FLANNEL_NETWORK=10.244.0.0/16\n", `{"cniVersion": "0.3.1"}`, "FLANNEL_SUBNET and FLANNEL_IPV6_SUBNET are missing"},
		"addresses that flannel gives":    {subnetFile, `{"cniVersion": "0.3.1", "delegate": {"ipam": {}}}`, `delegate must not have \"ipam\"`},
		"a plugin that is not one":        {subnetFile, `{"cniVersion": "0.3.1", "delegate": {"type": 7}}`, "delegate.type is 7"},
		"a plugin that is not to be had":  {subnetFile, `{"cniVersion": "0.3.1", "delegate": {"type": "none"}}`, "plugin none"},
		"routes that are not a list":      {subnetFile, `{"cniVersion": "0.3.1", "ipam": {"routes": "x"}}`, "ipam.routes is not a list"},
		"an MTU that is not a number":     {strings.Replace(subnetFile, "1450", "x", 1), `{"cniVersion": "0.3.1"}`, "FLANNEL_MTU"},
		"masquerading that is not a bool": {strings.Replace(subnetFile, "true", "x", 1), `{"cniVersion": "0.3.1"}`, "FLANNEL_IPMASQ"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			output, err := newPlugin(t, test.subnet, "bridge").call(t, "ADD", test.config)
			if err == nil || !strings.Contains(output, test.want) {
				t.Errorf("got %v and %s, want %s", err, output, test.want)
			}
		})
	}
}
