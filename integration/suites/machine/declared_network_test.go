package machine_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestDeclaredMachineIsThePodOnTheNetwork: the guest of a network of type pod answers at the pod's address, and the pod
// has its network back after the guest's end.
func TestDeclaredMachineIsThePodOnTheNetwork(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{MTU: 1400})
	before := network(t, pod)
	machine := declared(t)
	machine.Machine.Networks = []vmconfig.Network{{Type: vmconfig.NetworkPod}}
	v := vm.Start(t, vm.Options{Declared: machine, Pod: pod, Args: []string{"--qemu-user=0"}})
	if lease := v.Await(t, 0, "tiny: lease ", tinyBoots); !strings.Contains(lease, "router="+pod.Gateway.String()) || !strings.Contains(lease, "hostname=declared") {
		t.Errorf("the lease is %q", lease)
	}
	if address, want := v.Await(t, 0, "tiny: address=", tinyBoots), pod.Address.String()+"/24 mtu=1400"; address != want {
		t.Errorf("the guest has the address %q, want %q", address, want)
	}
	v.Await(t, 0, "tiny: ready", tinyBoots)
	if got := get(t, host.NewPod(t, podnet.PodOptions{MTU: 1400}).Namespace, pod.Address, "/1M"); got != 1<<20 {
		t.Errorf("another pod gets %d bytes from %s", got, pod.Address)
	}
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
	if after := network(t, pod); before != after {
		t.Errorf("the pod had\n%s\nand has now\n%s", before, after)
	}
}

// TestDeclaredMachineIsAtABridgeOfItsHost: the guest of a network of type tap gets its address from the network at the
// bridge, and the host keeps nothing of a runner that was killed.
func TestDeclaredMachineIsAtABridgeOfItsHost(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	before := host.Run(t, "ip", "-brief", "link")
	offered := netip.MustParseAddr("10.75.0.77")
	const mac = "52:54:00:12:34:56"
	serveDHCP(t, host, offered)
	machine := declared(t)
	machine.Machine.Networks = []vmconfig.Network{
		{Type: vmconfig.NetworkTap, Bridge: podnet.Bridge, MAC: mac}, {Type: vmconfig.NetworkUser, Device: "e1000"},
	}
	v := vm.Start(t, vm.Options{Declared: machine, Pod: &podnet.Pod{Namespace: host.Namespace}, Args: []string{"--qemu-user=0"}})
	if address, want := v.Await(t, 0, "tiny: address=", tinyBoots), offered.String()+"/24 mtu=1500"; address != want {
		t.Errorf("the guest has the address %q, want %q", address, want)
	}
	v.Await(t, 0, "tiny: ready", tinyBoots)
	other := host.NewPod(t, podnet.PodOptions{})
	if got := get(t, other.Namespace, offered, "/1M"); got != 1<<20 {
		t.Errorf("a pod of the host gets %d bytes from %s", got, offered)
	}
	if neighbors := other.Run(t, "ip", "neighbor", "show", offered.String()); !strings.Contains(neighbors, mac) {
		t.Errorf("the pod knows the guest as %q, want %s", neighbors, mac)
	}
	if ports := host.Run(t, "ip", "-details", "link", "show", "master", podnet.Bridge); !strings.Contains(ports, "alias network 0 of the VirtualMachine declared, 5f0c8f3e") {
		t.Errorf("the ports of the bridge are\n%s", ports)
	}
	v.Kill()
	poll.Eventually(t, runnerEnds, 100*time.Millisecond, func() error {
		after := host.Run(t, "ip", "-brief", "link")
		if slices.ContainsFunc(strings.Split(after, "\n"), func(line string) bool { return strings.HasPrefix(line, "kvmtap") }) {
			return fmt.Errorf("the host had\n%s\nand has now\n%s", before, after)
		}
		return nil
	})
}

// TestDeclaredMachineNeedsItsBridge: the runner says which bridge is missing.
func TestDeclaredMachineNeedsItsBridge(t *testing.T) {
	t.Parallel()
	machine := declared(t)
	machine.Machine.Networks = []vmconfig.Network{{Type: vmconfig.NetworkTap, Bridge: "br-nowhere"}}
	v := vm.Start(t, vm.Options{Declared: machine, Pod: &podnet.Pod{Namespace: podnet.NewHost(t).Namespace}, Args: []string{"--qemu-user=0"}})
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonNetworkFailed, "connecting the guest to the bridge br-nowhere: the host has no such interface", "")
}

// serveDHCP offers one address at the bridge of a host, until the test ends.
func serveDHCP(t *testing.T, host *podnet.Host, address netip.Addr) {
	t.Helper()
	answer := func(to net.PacketConn, _ net.Addr, request *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeOffer
		if request.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}
		reply, err := dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(address.AsSlice()),
			dhcpv4.WithServerIP(podnet.HostAddress.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(podnet.HostAddress.AsSlice())),
			dhcpv4.WithNetmask(net.CIDRMask(podnet.Subnet.Bits(), 32)), dhcpv4.WithLeaseTime(3600), dhcpv4.WithRouter(podnet.HostAddress.AsSlice()))
		if err == nil {
			_, err = to.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
		}
		if err != nil {
			t.Log("answering DHCP:", err)
		}
	}
	var server *server4.Server
	err := host.Do(func() (err error) {
		server, err = server4.NewServer(podnet.Bridge, &net.UDPAddr{Port: dhcpv4.ServerPort}, answer)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve() // closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
}
