package hostbridge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/hostbridge"
)

func TestPortGoesWithItsLastUser(t *testing.T) {
	host := podnet.NewHost(t)
	// The bridge has the address of its other port.
	pod := host.NewPod(t, podnet.PodOptions{})
	host.Run(t, "ip", "link", "set", "dev", pod.HostInterface, "address", "02:00:00:00:00:99")
	address := addressOf(t, host)
	ports := make([]*hostbridge.Port, 2)
	err := host.Do(func() (err error) {
		for i := range ports {
			if ports[i], err = hostbridge.Open(podnet.Bridge, "a machine"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ports[0].Name == ports[1].Name || ports[0].MTU != 1500 {
		t.Errorf("the ports are %+v and %+v", ports[0], ports[1])
	}
	shown := host.Run(t, "ip", "-details", "link", "show", "dev", ports[0].Name)
	for _, want := range []string{"master " + podnet.Bridge, "alias a machine", "link/ether fe:", "addrgenmode none", ",UP"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the port has no %q:\n%s", want, shown)
		}
	}
	if now := addressOf(t, host); now != address {
		t.Errorf("the bridge had the address %s and has %s", address, now)
	}
	for _, port := range ports {
		if err := port.Tap.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := host.Run(t, "ip", "-brief", "link"); strings.Contains(left, "kvmtap") {
		t.Errorf("the host still has\n%s", left)
	}
}

// TestGuestIsNoSwitch: no frame that switches act on leaves a guest.
func TestGuestIsNoSwitch(t *testing.T) {
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{})
	capture := pod.Capture(t, podnet.Interface)
	var port *hostbridge.Port
	err := host.Do(func() (err error) {
		port, err = hostbridge.Open(podnet.Bridge, "a machine")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Tap.Close()
	const virtioHeader = 10
	for _, frame := range []string{
		"\x01\x80\xc2\x00\x00\x00\x02\x00\x00\x00\x00\x01\x00\x26BBB spanning tree", "\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xccLLDP",
		"\x01\x80\xc2\x00\x00\x10\x02\x00\x00\x00\x00\x01\x88\xb5no control", "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5the last",
	} {
		if _, err := port.Tap.WriteString(strings.Repeat("\x00", virtioHeader) + frame + strings.Repeat(" ", 60)); err != nil {
			t.Fatal(err)
		}
	}
	var passed []string
	for deadline := time.Now().Add(10 * time.Second); !slices.Contains(passed, "the last") && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		passed = nil
		for _, frame := range capture.Frames() {
			if text := string(frame); strings.HasPrefix(text[6:], "\x02\x00\x00\x00\x00\x01") {
				passed = append(passed, strings.TrimSpace(text[14:]))
			}
		}
	}
	if !slices.Equal(passed, []string{"no control", "the last"}) {
		t.Errorf("the frames that passed are %q", passed)
	}
}

// addressOf returns the MAC address of the host's bridge.
func addressOf(t *testing.T, host *podnet.Host) string {
	t.Helper()
	return strings.Fields(host.Run(t, "ip", "-brief", "link", "show", "dev", podnet.Bridge))[2]
}

func TestOtherInterfacesAreRefused(t *testing.T) {
	host := podnet.NewHost(t)
	for name, want := range map[string]string{
		"br-nowhere": "connecting the guest to the bridge br-nowhere: the host has no such interface; make the bridge, or let the machine run on hosts that have it (spec.nodeSelector)",
		"lo":         `connecting the guest to the bridge lo: it is an interface of the type "device" and no bridge`,
	} {
		err := host.Do(func() error {
			_, err := hostbridge.Open(name, "a machine")
			return err
		})
		if err == nil || err.Error() != want {
			t.Errorf("%s: the error is %v, want %s", name, err, want)
		}
	}
	if left := host.Run(t, "ip", "-brief", "link"); strings.Contains(left, "kvmtap") {
		t.Errorf("the host has\n%s", left)
	}
}
