package microvm_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// pairs is how often each is measured. The two alternate, so both meet the same load of the machine.
const pairs = 7

// mostKeeper and mostKeeperNet bound the resident memory of a machine's keeper without and with a network, in bytes. What
// depends on the load of this machine is reported, and has its bounds in docs/benchmarks.md.
const (
	mostKeeper    = 20 * mib
	mostKeeperNet = 40 * mib
)

// BenchmarkStart compares a start by the server, from POST /start until the published port answers, with a bare QEMU that
// has the same arguments, image and kinds of disks, and QEMU's own network.
func BenchmarkStart(b *testing.B) {
	s, port := serve(b), freePort(b)
	s.create(b, "web", port)
	q := newBare(b, s.startMachine(b, "web").PID)
	awaitPort(b, port)
	s.stop(b, "web")
	for b.Loop() {
		var bareTimes, times, over []time.Duration
		var ratios []float64
		for range pairs {
			begin := time.Now()
			stop := q.start(b)
			awaitPort(b, q.port)
			bareTimes = append(bareTimes, time.Since(begin))
			stop()

			begin = time.Now()
			started := make(chan error, 1)
			go func() { _, err := s.client.Start(b.Context(), "web", api.StartRequest{}); started <- err }()
			awaitPort(b, port)
			times = append(times, time.Since(begin))
			if err := <-started; err != nil {
				b.Fatal(err)
			}
			s.stop(b, "web")
			last := len(times) - 1
			ratios = append(ratios, times[last].Seconds()/bareTimes[last].Seconds())
			over = append(over, times[last]-bareTimes[last]*11/10)
		}
		b.ReportMetric(median(bareTimes).Seconds(), "bare-start-s")
		b.ReportMetric(median(times).Seconds(), "start-s")
		b.ReportMetric(median(ratios), "start-ratio")
		b.Logf("start until the port answers: bare %v, server %v", bareTimes, times)
		b.ReportMetric(median(over).Seconds(), "start-beyond-1.1x-s")
	}
}

// BenchmarkPort compares what a published port carries from and to the guest with QEMU's own network. Both guests run all
// the time, and one is measured at a time.
func BenchmarkPort(b *testing.B) {
	s, port := serve(b), freePort(b)
	s.create(b, "web", port)
	q := newBare(b, s.startMachine(b, "web").PID)
	q.start(b)
	awaitPort(b, port)
	awaitPort(b, q.port)
	const size = 32 * mib
	script := fmt.Sprintf(`mkdir -p /srv/cgi-bin && dd if=/dev/zero of=/srv/large bs=1M count=%d && echo '#!/bin/sh
echo Content-Type: text/plain; echo; wc -c' >/srv/cgi-bin/sink && chmod 755 /srv/cgi-bin/sink`, size/mib)
	if r, err := s.client.Exec(b.Context(), "web", api.ExecRequest{Command: []string{"sh", "-c", script}}); err != nil || r.ExitCode != 0 {
		b.Fatalf("%+v: %v", r, err)
	}
	q.agent(b, func(ctx context.Context, c *agentwire.Client) error {
		code, err := c.Exec(ctx, agentwire.Exec{Command: []string{"sh", "-c", script}, User: "root"}, nil, nil, nil)
		if err == nil && code != 0 {
			err = fmt.Errorf("the script ends with %d", code)
		}
		return err
	})
	for b.Loop() {
		for _, direction := range []struct {
			name string
			move func(*testing.B, uint16, int64)
		}{{"from", download}, {"to", upload}} {
			var bareRates, rates, ratios []float64
			for range pairs {
				begin := time.Now()
				direction.move(b, q.port, size)
				bareRates = append(bareRates, size/mib/time.Since(begin).Seconds())
				begin = time.Now()
				direction.move(b, port, size)
				rates = append(rates, size/mib/time.Since(begin).Seconds())
				ratios = append(ratios, rates[len(rates)-1]/bareRates[len(rates)-1])
			}
			b.ReportMetric(median(bareRates), "user-network-"+direction.name+"-MiB/s")
			b.ReportMetric(median(rates), "port-"+direction.name+"-MiB/s")
			b.ReportMetric(median(ratios), "port-"+direction.name+"-ratio")
			b.Logf("MiB/s %s the guest: user network %.1f, port %.1f", direction.name, bareRates, rates)
		}
		withNetwork := residentOfKeeper(b, s.get(b, "web").PID)
		b.ReportMetric(float64(withNetwork)/mib, "keeper-MiB")
		if withNetwork > mostKeeperNet {
			b.Errorf("the keeper has %d bytes after that, the bound is %d", withNetwork, mostKeeperNet)
		}
	}
}

// BenchmarkImage counts what a registry is asked for, and how much memory a machine without a network takes besides QEMU.
func BenchmarkImage(b *testing.B) {
	for b.Loop() {
		s := serve(b)
		var both sync.WaitGroup
		for _, name := range []string{"one", "two"} {
			s.create(b, name, 0)
			both.Go(func() { _, _ = s.client.Start(b.Context(), name, api.StartRequest{}) })
		}
		both.Wait()
		b.Logf("two machines at once: %s, each at most %d times", s.asked, s.asked.most())
		if s.asked.most() != 1 {
			b.Errorf("a blob was downloaded %d times, the bound is once", s.asked.most())
		}
		s.asked.forget()
		s.create(b, "three", 0)
		m := s.startMachine(b, "three")
		b.Logf("another one: %s", s.asked)
		b.ReportMetric(float64(s.asked.manifests), "another-manifests")
		b.ReportMetric(float64(s.asked.bytes), "another-bytes")
		if s.asked.manifests != 1 || s.asked.bytes != 0 {
			b.Errorf("another machine of the image takes %s, the bounds are 1 and 0", s.asked)
		}
		resident := residentOfKeeper(b, m.PID)
		b.ReportMetric(float64(resident)/mib, "keeper-without-network-MiB")
		if resident > mostKeeper {
			b.Errorf("the keeper of a machine without a network has %d bytes, the bound is %d", resident, mostKeeper)
		}
	}
}

func (s *server) get(b *testing.B, name string) api.Machine {
	b.Helper()
	m, err := s.client.Get(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// residentOfKeeper returns the resident memory, in bytes, of the process that has started a QEMU.
func residentOfKeeper(b *testing.B, qemu int) int64 {
	b.Helper()
	field := func(pid, name string) string {
		text, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, name+":"); ok {
				return strings.TrimSuffix(strings.TrimSpace(value), " kB")
			}
		}
		b.Fatalf("process %s has no %s", pid, name)
		return ""
	}
	kib, err := strconv.ParseInt(field(field(strconv.Itoa(qemu), "PPid"), "VmRSS"), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

func freePort(b *testing.B) uint16 {
	b.Helper()
	port, err := ocifixture.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	return port
}

// once is a client that keeps no connections.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// each and attempt are how often a port is asked, and for how long.
const (
	each    = 50 * time.Millisecond
	attempt = time.Second
)

// awaitPort waits until the web server of a guest answers. A network may accept a connection and then wait for the guest, so
// there is another attempt before one has failed. There are few at a time, because networks bound their number.
func awaitPort(b *testing.B, port uint16) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), answers)
	defer cancel()
	answered := make(chan struct{}, 1)
	ask := func() {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		if move(ctx, http.MethodGet, address(port, ""), nil, func(text []byte) bool { return bytes.HasPrefix(text, []byte("hello")) }) == nil {
			select {
			case answered <- struct{}{}:
			default:
			}
		}
	}
	next := time.NewTicker(each)
	defer next.Stop()
	for {
		select {
		case <-answered:
			return
		case <-ctx.Done():
			b.Fatalf("port %d does not answer", port)
		case <-next.C:
			go ask()
		}
	}
}

func address(port uint16, path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/%s", port, path)
}

// move makes a request whose whole answer has to be as expected.
func move(ctx context.Context, method, url string, body io.Reader, expected func([]byte) bool) error {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	answer, err := once.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || !expected(text)) {
		err = fmt.Errorf("%s answers %s with %d bytes", url, answer.Status, len(text))
	}
	return err
}

func download(b *testing.B, port uint16, size int64) {
	b.Helper()
	if err := move(b.Context(), http.MethodGet, address(port, "large"), nil, func(text []byte) bool { return int64(len(text)) == size }); err != nil {
		b.Fatal(err)
	}
}

func upload(b *testing.B, port uint16, size int64) {
	b.Helper()
	body := bytes.NewReader(make([]byte, size)) // whose length is sent
	if err := move(b.Context(), http.MethodPost, address(port, "cgi-bin/sink"), body, func(text []byte) bool {
		return strings.TrimSpace(string(text)) == strconv.FormatInt(size, 10)
	}); err != nil {
		b.Fatal(err)
	}
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
