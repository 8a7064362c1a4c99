package machine_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

func TestGuestIsThePodOnTheNetwork(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{MTU: 1400})
	before := network(t, pod)
	v := vm.Start(t, vm.Options{Name: "worker-1", Pod: pod, Args: []string{"--dns-servers=10.0.0.53", "--ntp-servers=10.0.0.123"}})

	lease := v.Await(t, 0, "tiny: lease ", tinyBoots)
	for _, want := range []string{"router=" + pod.Gateway.String(), "dns=10.0.0.53", "ntp=10.0.0.123", "hostname=worker-1"} {
		if !strings.Contains(lease, want) {
			t.Errorf("the lease is %q and has no %s", lease, want)
		}
	}
	address := v.Await(t, 0, "tiny: address=", tinyBoots)
	if want := fmt.Sprintf("%s/24 mtu=1400", pod.Address); address != want {
		t.Errorf("the guest has the address %q, want %q", address, want)
	}
	v.Await(t, 0, "tiny: ready", tinyBoots)

	other := host.NewPod(t, podnet.PodOptions{MTU: 1400})
	for from, namespace := range map[string]*podnet.Namespace{"the host": host.Namespace, "another pod": other.Namespace} {
		namespace.Run(t, "ping", "-c", "3", "-W", "5", pod.Address.String())
		// Full frames pass without fragmentation.
		if got := get(t, namespace, pod.Address, "/1M"); got != 1<<20 {
			t.Errorf("%s gets %d bytes from %s", from, got, pod.Address)
		}
	}
	guestReaches(t, v, other)

	if status := v.Status(t); !status.Ready || status.Kubelet != "ok" || status.Address != pod.Address.String() {
		t.Errorf("the status is %+v", status)
	}
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
	after := network(t, pod)
	if before != after {
		t.Errorf("the pod had\n%s\nand has now\n%s", before, after)
	}
	host.Run(t, "ping", "-c", "1", "-W", "5", pod.Address.String())
}

// network returns a pod's network configuration.
func network(t *testing.T, pod *podnet.Pod) string {
	t.Helper()
	return pod.Run(t, "ip", "-brief", "address") + pod.Run(t, "ip", "-brief", "link") + pod.Run(t, "ip", "route") + pod.Run(t, "ip", "-6", "route") +
		pod.Run(t, "sh", "-c", "ip link show dev "+podnet.Interface+" | grep -o 'mtu [0-9]*'")
}

// guestReaches checks that the guest reaches another pod by TCP and ICMP.
func guestReaches(t *testing.T, v *vm.VM, other *podnet.Pod) {
	t.Helper()
	listener, err := other.Listen(t.Context(), "tcp4", netip.AddrPortFrom(other.Address, 7000).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "hello guest\n")
			_ = connection.Close()
		}
	}()
	v.Type(t, fmt.Sprintf("sh ping -c 1 -W 5 %s && nc %s 7000 </dev/null", other.Address, other.Address))
	v.Await(t, 0, "hello guest", goesDown)
}

// get fetches a path from the guest's web server and returns the length of its body.
func get(t *testing.T, from *podnet.Namespace, address netip.Addr, path string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connection, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(address, 8080).String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return exchange(t, connection, path)
}

func exchange(t *testing.T, connection net.Conn, path string) int64 {
	t.Helper()
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(line) == "" {
			break
		}
	}
	n, err := io.Copy(io.Discard, reader)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTwoMachinesOnOneHost: the machines share the host, the cache of images and all names in their pods.
func TestTwoMachinesOnOneHost(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	images, downloads := vm.Directory(t), serveImages(t, host)
	var pods []*podnet.Pod
	var machines []*vm.VM
	for i := range 2 {
		pod := host.NewPod(t, podnet.PodOptions{})
		pods = append(pods, pod)
		machines = append(machines, vm.Start(t, vm.Options{
			Name: fmt.Sprintf("worker-%d", i), Pod: pod,
			Args: []string{"--images=" + images, "--disk=rootfs:64M", "--image=" + downloads.image},
		}))
	}
	for i, v := range machines {
		if got := v.Await(t, 0, "tiny: address=", tinyBoots); !strings.HasPrefix(got, pods[i].Address.String()+"/") {
			t.Errorf("guest %d has the address %s, want %s", i, got, pods[i].Address)
		}
		v.Await(t, 0, "tiny: ready", tinyBoots)
		if status := v.Status(t); !status.Ready {
			t.Errorf("machine %d is %+v", i, status)
		}
		host.Run(t, "ping", "-c", "3", "-W", "5", pods[i].Address.String())
	}
	for name, n := range downloads.counts() {
		if n != 1 {
			t.Errorf("%s was downloaded %d times", name, n)
		}
	}
	// The end of one machine does not affect the other.
	machines[0].Terminate(t)
	expectEnd(t, machines[0].Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "")
	if status := machines[1].Status(t); !status.Ready {
		t.Errorf("the other machine is %+v", status)
	}
	if got := get(t, host.Namespace, pods[1].Address, "/1M"); got != 1<<20 {
		t.Errorf("the other guest answers with %d bytes", got)
	}
}

// downloads is a web server with the tiny image.
type downloads struct {
	// image describes the image.
	image string

	mu     sync.Mutex
	served map[string]int
}

func (d *downloads) counts() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.served)
}

func serveImages(t *testing.T, host *podnet.Host) *downloads {
	t.Helper()
	address := netip.AddrPortFrom(podnet.HostAddress, 8000)
	listener, err := host.Listen(t.Context(), "tcp4", address.String())
	if err != nil {
		t.Fatal(err)
	}
	tiny := vm.Tiny(t)
	d := &downloads{served: map[string]int{}}
	d.image = fmt.Sprintf(`{"name":"tiny","kernel":{"url":"http://%[1]s/kernel","sha256":%[2]q},"initrd":{"url":"http://%[1]s/initrd","sha256":%[3]q},"kernelArguments":["quiet","nokaslr"]}`,
		address, sumOf(t, tiny.Kernel), sumOf(t, tiny.Initrd))
	serve := func(path string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			d.served[r.URL.Path]++
			d.mu.Unlock()
			http.ServeFile(w, r, path)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /kernel", serve(tiny.Kernel))
	mux.Handle("GET /initrd", serve(tiny.Initrd))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return d
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func TestGuestWithoutKubeletIsNotReady(t *testing.T) {
	t.Parallel()
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
	v := vm.Start(t, vm.Options{Pod: pod, Image: vm.Tiny(t).With("tiny.nohealth")})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Await(t, 0, "tiny: address=", tinyBoots)
	status := v.Status(t)
	if status.Ready || !status.Live || !strings.Contains(status.Unready, "kubelet") || !strings.Contains(status.Unready, "refused") {
		t.Errorf("the status is %+v", status)
	}
}
