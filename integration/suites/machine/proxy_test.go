package machine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// TestRunnerCarriesTheConnectionsOfItsGuest: the pod keeps its network, and the guest is reachable and reaches others
// under the pod's address.
func TestRunnerCarriesTheConnectionsOfItsGuest(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	pod, other := host.NewPod(t, podnet.PodOptions{MTU: 1400}), host.NewPod(t, podnet.PodOptions{MTU: 1400})
	before := network(t, pod)
	v := vm.Start(t, vm.Options{Name: "worker-1", Pod: pod, Args: []string{"--network=proxy", "--ports=tcp:8080,tcp:7,tcp:9", "--dns-servers=10.0.0.53"}})

	lease := v.Await(t, 0, "tiny: lease ", tinyBoots)
	for _, want := range []string{"router=169.254.75.1", "dns=10.0.0.53", "hostname=worker-1"} {
		if !strings.Contains(lease, want) {
			t.Errorf("the lease is %q and has no %s", lease, want)
		}
	}
	if got, want := v.Await(t, 0, "tiny: address=", tinyBoots), fmt.Sprintf("%s/32 mtu=1400", pod.Address); got != want {
		t.Errorf("the guest has the address %q, want %q", got, want)
	}
	v.Await(t, 0, "tiny: ready", tinyBoots)
	for from, namespace := range map[string]*podnet.Namespace{"the host": host.Namespace, "another pod": other.Namespace} {
		if got := get(t, namespace, pod.Address, "/1M"); got != 1<<20 {
			t.Errorf("%s gets %d bytes from %s", from, got, pod.Address)
		}
	}
	for port, want := range map[uint16]error{10248: syscall.ECONNREFUSED, 9: syscall.ECONNRESET} {
		if err := knock(t, other.Namespace, netip.AddrPortFrom(pod.Address, port)); !errors.Is(err, want) {
			t.Errorf("port %d, which is not published or has nothing behind it, gives %v, want %v", port, err, want)
		}
	}
	if client := guestCalls(t, v, other); client != pod.Address {
		t.Errorf("another pod is called by %s, want %s", client, pod.Address)
	}
	if status := v.Status(t); !status.Ready || status.Kubelet != "ok" || status.Address != pod.Address.String() {
		t.Errorf("the status is %+v", status)
	}
	if during := network(t, pod); before != during {
		t.Errorf("the pod had\n%s\nand has\n%s", before, during)
	}
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
}

// knock connects to a port and reads from the connection.
func knock(t *testing.T, from *podnet.Namespace, to netip.AddrPort) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	connection, err := from.Dial(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = connection.Read(make([]byte, 1))
	return err
}

// guestCalls makes the guest connect to another pod, and returns the guest's address as seen there.
func guestCalls(t *testing.T, v *vm.VM, other *podnet.Pod) netip.Addr {
	t.Helper()
	listener, err := other.Listen(t.Context(), "tcp4", netip.AddrPortFrom(other.Address, 7000).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	seen := make(chan netip.Addr, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		seen <- connection.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		_, _ = io.WriteString(connection, "hello guest\n")
		_ = connection.Close()
	}()
	v.Type(t, fmt.Sprintf("sh nc %s 7000 </dev/null", other.Address))
	v.Await(t, 0, "hello guest", goesDown)
	return <-seen
}
