package podnet_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

func TestPodsReachTheirHostAndEachOther(t *testing.T) {
	cases := map[string]podnet.PodOptions{
		"on the bridge":                        {IPv6: true},
		"on the bridge without gateway":        {IPv6: true, NoGateway: true},
		"on a bridge that sends frames back":   {IPv6: true, Hairpin: true},
		"each on its own link":                 {IPv6: true, PointToPoint: true},
		"each on its own link, with small MTU": {IPv6: true, PointToPoint: true, MTU: 1400},
	}
	for name, options := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := podnet.NewHost(t)
			left, right := host.NewPod(t, options), host.NewPod(t, options)
			left.Run(t, "ping", "-c1", "-W5", right.Address.String())
			left.Run(t, "ping", "-c1", "-W5", right.Address6.String())
			right.Run(t, "ping", "-c1", "-W5", podnet.HostAddress.String())
			host.Run(t, "ping", "-c1", "-W5", right.Address6.String())
		})
	}
}

func TestProgramsAndSocketsAreThoseOfTheNamespace(t *testing.T) {
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{MTU: 1400})
	listener, err := pod.Listen(t.Context(), "tcp4", net.JoinHostPort(pod.Address.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			fmt.Fprint(connection, "hello")
			connection.Close()
		}
	}()
	connection, err := host.Dial(t.Context(), "tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	got, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("hello", string(got)); diff != "" {
		t.Error(diff)
	}
	if output := pod.Run(t, "ip", "link", "show", podnet.Interface); !strings.Contains(output, "mtu 1400") || !strings.Contains(output, pod.MAC.String()) {
		t.Errorf("the pod's interface has another MTU or MAC than %s: %s", pod.MAC, output)
	}
}

func TestDoComesBackFromPanicsAndErrors(t *testing.T) {
	before := namespaceOfThread(t)
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
	func() {
		defer func() { _ = recover() }()
		_ = pod.Do(func() error { panic("in the pod") })
	}()
	want := errors.New("in the pod")
	if err := pod.Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got the error %v, want %v", err, want)
	}
	if after := namespaceOfThread(t); after != before {
		t.Errorf("the thread was in %s and is in %s", before, after)
	}
}

func namespaceOfThread(t *testing.T) string {
	t.Helper()
	path, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGuestSpeaksThroughItsTap(t *testing.T) {
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{})
	pod.Run(t, "sh", "-ec", `
		ip tuntap add dev tap0 mode tap
		ip addr flush dev eth0
		ip link add br0 type bridge
		for i in eth0 tap0; do ip link set $i master br0; done
		for i in tap0 br0; do ip link set $i up; done`)
	guest := pod.NewGuest(t, "tap0", net.HardwareAddr{2, 0, 0, 0, 0, 1})
	capture := host.Capture(t, pod.HostInterface)
	guest.Run(t, "ip", "addr", "add", pod.Address.String()+"/24", "dev", podnet.Interface)
	guest.Run(t, "ping", "-c1", "-W5", podnet.HostAddress.String())
	if len(capture.Frames()) == 0 {
		t.Error("the guest's frames were not captured")
	}
}

const childVariable = "PODNET_TEST_CHILD"

// TestNothingIsLeftAfterSIGKILL starts this test again as a child that creates a pod with a program in it and waits.
func TestNothingIsLeftAfterSIGKILL(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
		sleep := pod.Command("sleep", "1000")
		if err := sleep.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nready %s /proc/%d\n", filepath.Dir(filepath.Dir(pod.Path())), sleep.Process.Pid)
		_ = sleep.Wait()
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeftAfterSIGKILL$", "-test.v")
	child.Env = append(os.Environ(), childVariable+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	processes := readyProcesses(t, output)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for _, path := range processes {
		awaitEnd(t, path)
	}
}

func readyProcesses(t *testing.T, output io.Reader) []string {
	t.Helper()
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatal("the child made no pod")
	return nil
}

func awaitEnd(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		status, err := os.ReadFile(filepath.Join(path, "status"))
		if err != nil || strings.Contains(string(status), "State:\tZ") {
			return
		}
	}
	t.Errorf("the process %s still runs", path)
}
