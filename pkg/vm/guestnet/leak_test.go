package guestnet

import (
	"bytes"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

// TestNothingOfTheRunnersPathLeavesThePod lets two pods on one bridge, with the same internal addresses, do everything
// that involves these addresses at the same time, and inspects what leaves the pods.
func TestNothingOfTheRunnersPathLeavesThePod(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	var pods [2]*podnet.Pod
	var guests [2]*podnet.Guest
	var captures [2]*podnet.Capture
	for i := range pods {
		pods[i] = host.NewPod(t, podnet.PodOptions{IPv6: true})
		n := takePod(t, pods[i])
		captures[i] = host.CaptureIncoming(t, pods[i].HostInterface)
		serve(t, n)
		guests[i] = pods[i].NewGuest(t, n.Tap, n.MAC)
		configureByDHCP(t, guests[i])
		addressByDHCPv6(t, guests[i], n)
	}
	for i, pod := range pods {
		checkReach(t, guests[i], pod, guests[1-i].Namespace, pods[1-i].Address)
		checkConnection(t, pod.Namespace, guests[i].Namespace, pod.Address6)
		guests[i].Run(t, "ping", "-c1", "-W5", RunnerAddress6.String()+"%"+podnet.Interface)
		guests[i].Run(t, "ping", "-c1", "-W5", pods[1-i].Address6.String())
	}
	checkNoAnswers(t, host)
	for i, capture := range captures {
		frames := capture.Frames()
		if len(frames) < 10 {
			t.Errorf("pod %d: only %d frames were seen", i, len(frames))
		}
		for _, frame := range frames {
			if what := keptInsideOf(frame); what != "" {
				t.Errorf("pod %d: %s left the pod: %x", i, what, frame)
			}
		}
	}
}

// keptInsideOf says what in a frame should have stayed in the pod. Unlike the filters it searches for bytes anywhere.
func keptInsideOf(frame []byte) string {
	for what, part := range map[string][]byte{
		"the runner's IPv4 address":        RunnerAddress.AsSlice(),
		"the runner's or an alias address": linkPrefix.Addr().AsSlice()[:14],
		"a DHCP message":                   {0x63, 0x82, 0x53, 0x63},
	} {
		if bytes.Contains(frame, part) {
			return what
		}
	}
	isICMPv6 := len(frame) > 54 && frame[12] == 0x86 && frame[20] == protocolICMPv6
	if isICMPv6 && (frame[54] == typeRouterSolicitation || frame[54] == typeRouterAdvertisement) {
		return "router discovery"
	}
	return ""
}

// checkNoAnswers sends requests for the runners' addresses from outside.
func checkNoAnswers(t *testing.T, host *podnet.Host) {
	t.Helper()
	for _, address := range []string{RunnerAddress.String(), RunnerAddress6.String() + "%" + podnet.Bridge} {
		output, err := host.Command("ping", "-c1", "-W2", address).CombinedOutput()
		if _, isExit := errorAs[*exec.ExitError](err); !isExit {
			t.Errorf("a host answers for %s: %v\n%s", address, err, output)
		}
	}
}

func TestAnswersOfOtherDHCPServersDoNotReachTheGuest(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{})
	n := takePod(t, pod)
	serve(t, n)
	guest := pod.NewGuest(t, n.Tap, n.MAC)
	configureByDHCP(t, guest)
	const otherPort = 6868
	server := listenUDP(t, host.Namespace, portDHCPServer)
	client, other := listenUDP(t, guest.Namespace, portDHCPClient), listenUDP(t, guest.Namespace, otherPort)
	for _, port := range []int{portDHCPClient, otherPort} {
		if _, err := server.WriteTo([]byte("an offer"), &net.UDPAddr{IP: net.IPv4(10, 75, 0, 255), Port: port}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := other.ReadFrom(make([]byte, 100)); err != nil {
		t.Errorf("what is no DHCP does not reach the guest: %s", err)
	}
	// What was sent before has arrived by now or never will.
	if err := client.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if length, from, err := client.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("the guest has got %d bytes of DHCP from %s", length, from)
	}
}

func listenUDP(t *testing.T, n *podnet.Namespace, port int) net.PacketConn {
	t.Helper()
	connection, err := n.ListenPacket(t.Context(), "udp4", (&net.UDPAddr{IP: net.IPv4zero, Port: port}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return connection
}
