package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

const (
	publicHalf = `{
  "ignition": {"version": "3.3.0"},
  "storage": {"files": [{"path": "/etc/from-public", "mode": 420, "contents": {"source": "data:,public-half"}}]},
  "systemd": {"units": [{"name": "from-public.service", "enabled": true,
    "contents": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo unit-ran >/run/from-public'\n[Install]\nWantedBy=multi-user.target\n"}]},
  "passwd": {"users": [{"name": "ada", "groups": ["sudo"], "sshAuthorizedKeys": ["ssh-ed25519 AAAA ada"]}]}
}`
	privateHalf = `{
  "ignition": {"version": "3.3.0"},
  "storage": {"files": [{"path": "/etc/from-private", "mode": 384, "contents": {"source": "data:,private-half"}}]},
  "systemd": {"units": [{"name": "from-private.service", "enabled": true,
    "contents": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo unit-ran >/run/from-private'\n[Install]\nWantedBy=multi-user.target\n"}]},
  "passwd": {"users": [{"name": "grace"}]}
}`
)

// TestGuestImageAppliesBothHalves boots the full image: systemd, the real Ignition, and a DHCP client like Flatcar's.
func TestGuestImageAppliesBothHalves(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{MTU: 1380, IPv6: true})
	v := vm.Start(t, vm.Options{
		Name: "master-m1-x", Pod: pod, Image: vm.Full(t), BootData: []string{vm.Pack(t, publicHalf), vm.Pack(t, privateHalf)},
		CPUs: 2, Memory: 1536, Args: []string{"--disk=rootfs:5G", "--disk=dockerfs:1G", "--disk=kubeletfs:1G", "--dns-servers=10.0.0.53", "--health-port=0"},
	})
	v.Await(t, 0, "login: root (automatic login)", fullBoots)
	number := 0
	for what, expected := range map[string]struct{ command, want string }{
		"the file of the public half":       {"cat /etc/from-public", "public-half"},
		"the file of the private half":      {"cat /etc/from-private", "private-half"},
		"the mode of the private file":      {"stat -c %a:%U /etc/from-private", "600:root"},
		"the unit of the public half":       {"systemctl is-active from-public.service; cat /run/from-public", "active unit-ran"},
		"the unit of the private half":      {"systemctl is-active from-private.service; cat /run/from-private", "active unit-ran"},
		"the user of the public half":       {"id -nG ada", "ada sudo"},
		"the key of the public half's user": {"cat ~ada/.ssh/authorized_keys*/* ~ada/.ssh/authorized_keys 2>/dev/null | grep -c AAAA", "1"},
		"the user of the private half":      {"id -un grace", "grace"},
		"the host name":                     {"hostname", "master-m1-x"},
		"the address":                       {"ip -4 -o address show dev eth0 | awk '{print $4}'", pod.Address.String() + "/24"},
		"the IPv6 address":                  {"ip -6 -o address show dev eth0 scope global | awk '{print $4}'", pod.Address6.String() + "/"},
		"the IPv6 default route":            {"ip -6 route show default | wc -l", "1"},
		"the MTU":                           {"cat /sys/class/net/eth0/mtu", "1380"},
		"the default route":                 {"ip -4 route show default | awk '{print $3}'", pod.Gateway.String()},
		"the MAC":                           {"cat /sys/class/net/eth0/address", pod.MAC.String()},
		"the DNS server":                    {"resolvectl dns eth0 2>/dev/null || grep -h ^DNS= /run/systemd/netif/state", "10.0.0.53"},
		"the root file system on its disk":  {"cat /sys/block/$(basename $(readlink -f /dev/disk/by-id/virtio-rootfs))/size", fmt.Sprint(5 << 30 / 512)},
		"the disks by their serial numbers": {"ls /dev/disk/by-id", "virtio-dockerfs virtio-guestos virtio-kubeletfs virtio-rootfs"},
		"that no unit of the system failed": {"systemctl --failed --no-legend --plain | wc -l", "0"},
		"its own machine id":                {"wc -c </etc/machine-id", "33"},
	} {
		number++
		expectAnswer(t, v, number, what, expected.command, expected.want)
	}
	host.Run(t, "ping", "-c", "3", "-W", "5", pod.Address.String())
	host.Run(t, "ping", "-c", "3", "-W", "5", pod.Address6.String())
	v.Terminate(t)
	expectEnd(t, v.Wait(t, fullBoots), keeper.ReasonPoweredDown, "the guest shut down", "")
}

// expectAnswer runs a command in the guest's shell. The shell echoes the command on the console, sometimes in pieces,
// so the answer is marked with a number that only the answer has.
func expectAnswer(t *testing.T, v *vm.VM, number int, what, command, want string) {
	t.Helper()
	answer := ""
	// After login is possible, a guest still waits for router advertisements and for its last units.
	for attempt := range 30 {
		mark := 1000*number + attempt
		v.Type(t, fmt.Sprintf(`echo "answer $((%d + 1)): $({ %s; } | xargs) :end"`, mark-1, command))
		answer, _, _ = strings.Cut(v.Await(t, 0, fmt.Sprintf("answer %d: ", mark), goesDown), " :end")
		if strings.Contains(answer, want) {
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("%s: %s answers %q, want %q", what, command, answer, want)
}
