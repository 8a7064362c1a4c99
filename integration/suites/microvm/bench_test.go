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
	s := serve(b)
	for b.Loop() {
		starts := compareStart(b, s, pairs)
		s.deleteAll(b)
		var ratios []float64
		var over []time.Duration
		for i, bare := range starts.bare {
			ratios = append(ratios, starts.server[i].Seconds()/bare.Seconds())
			over = append(over, starts.server[i]-bare*11/10)
		}
		b.ReportMetric(median(starts.bare).Seconds(), "bare-start-s")
		b.ReportMetric(median(starts.server).Seconds(), "start-s")
		b.ReportMetric(median(ratios), "start-ratio")
		b.Logf("start until the port answers: bare %v, server %v", starts.bare, starts.server)
		b.ReportMetric(median(over).Seconds(), "start-beyond-1.1x-s")
	}
}

// starts is how long starts took, pair by pair.
type starts struct{ bare, server []time.Duration }

func compareStart(b testing.TB, s *server, pairs int) (all starts) {
	b.Helper()
	port := freePort(b)
	s.create(b, "web", port)
	q := newBare(b, s.startMachine(b, "web").PID)
	awaitPort(b, port)
	s.stop(b, "web")
	for range pairs {
		begin := time.Now()
		stop := q.start(b)
		awaitPort(b, q.port)
		all.bare = append(all.bare, time.Since(begin))
		stop()

		begin = time.Now()
		started := make(chan error, 1)
		go func() { _, err := s.client.Start(b.Context(), "web", api.StartRequest{}); started <- err }()
		awaitPort(b, port)
		all.server = append(all.server, time.Since(begin))
		if err := <-started; err != nil {
			b.Fatal(err)
		}
		s.stop(b, "web")
	}
	return all
}

// BenchmarkPort compares what a published port carries from and to the guest with QEMU's own network. Both guests run all
// the time, and one is measured at a time.
func BenchmarkPort(b *testing.B) {
	s := serve(b)
	for b.Loop() {
		all := comparePort(b, s, pairs, 32*mib)
		s.deleteAll(b)
		for direction, r := range all.rates {
			var ratios []float64
			for i, bare := range r.bare {
				ratios = append(ratios, r.port[i]/bare)
			}
			b.ReportMetric(median(r.bare), "user-network-"+direction+"-MiB/s")
			b.ReportMetric(median(r.port), "port-"+direction+"-MiB/s")
			b.ReportMetric(median(ratios), "port-"+direction+"-ratio")
			b.Logf("MiB/s %s the guest: user network %.1f, port %.1f", direction, r.bare, r.port)
		}
		b.ReportMetric(float64(all.keeper)/mib, "keeper-MiB")
	}
}

// carried is what ports carry "from" and "to" the guest, and the resident memory of the keeper after that, in bytes.
type carried struct {
	rates  map[string]rates
	keeper int64
}

// rates are in MiB a second, pair by pair.
type rates struct{ bare, port []float64 }

// comparePort moves so many bytes in each direction, in each pair, and fails where the keeper has more memory than its bound.
func comparePort(b testing.TB, s *server, pairs int, size int64) carried {
	b.Helper()
	port := freePort(b)
	s.create(b, "web", port)
	q := newBare(b, s.startMachine(b, "web").PID)
	q.start(b)
	awaitPort(b, port)
	awaitPort(b, q.port)
	prepareBoth(b, s, q, size)
	all := carried{rates: map[string]rates{}}
	for direction, move := range map[string]func(testing.TB, uint16, int64){"from": download, "to": upload} {
		rate := func(port uint16) float64 {
			begin := time.Now()
			move(b, port, size)
			return float64(size) / mib / time.Since(begin).Seconds()
		}
		var r rates
		for range pairs {
			r.bare = append(r.bare, rate(q.port))
			r.port = append(r.port, rate(port))
		}
		all.rates[direction] = r
	}
	all.keeper = residentOfKeeper(b, s.get(b, "web").PID)
	if all.keeper > mostKeeperNet {
		b.Errorf("the keeper has %d bytes after that, the bound is %d", all.keeper, mostKeeperNet)
	}
	return all
}

// prepareBoth makes both guests serve a file of so many bytes, and count what they are sent.
func prepareBoth(b testing.TB, s *server, q *bare, size int64) {
	b.Helper()
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
}

// BenchmarkImage counts what a registry is asked for, and how much memory a machine without a network takes besides QEMU.
func BenchmarkImage(b *testing.B) {
	for b.Loop() {
		c := measureImage(b, serve(b))
		b.ReportMetric(float64(c.manifests), "another-manifests")
		b.ReportMetric(float64(c.bytes), "another-bytes")
		b.ReportMetric(float64(c.keeper)/mib, "keeper-without-network-MiB")
	}
}

// imageCost is how often two machines at once have the blob downloaded that is downloaded most often, what another one asks
// the registry for, and the resident memory of its keeper in bytes.
type imageCost struct {
	most, manifests, bytes int
	keeper                 int64
}

// measureImage needs a server that has no images, and fails where a count or the memory exceeds its bound.
func measureImage(b testing.TB, s *server) (c imageCost) {
	b.Helper()
	var both sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		s.create(b, name, 0)
		both.Go(func() { _, _ = s.client.Start(b.Context(), name, api.StartRequest{}) })
	}
	both.Wait()
	c.most = s.asked.most()
	b.Logf("two machines at once: %s, each at most %d times", s.asked, c.most)
	if c.most != 1 {
		b.Errorf("a blob was downloaded %d times, the bound is once", c.most)
	}
	s.asked.forget()
	s.create(b, "three", 0)
	m := s.startMachine(b, "three")
	b.Logf("another one: %s", s.asked)
	c.manifests, c.bytes = s.asked.manifests, s.asked.bytes
	if c.manifests != 1 || c.bytes != 0 {
		b.Errorf("another machine of the image takes %s, the bounds are 1 and 0", s.asked)
	}
	c.keeper = residentOfKeeper(b, m.PID)
	if c.keeper > mostKeeper {
		b.Errorf("the keeper of a machine without a network has %d bytes, the bound is %d", c.keeper, mostKeeper)
	}
	return c
}

func (s *server) get(b testing.TB, name string) api.Machine {
	b.Helper()
	m, err := s.client.Get(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// residentOfKeeper returns the resident memory, in bytes, of the process that has started a QEMU.
func residentOfKeeper(b testing.TB, qemu int) int64 {
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

func freePort(b testing.TB) uint16 {
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
func awaitPort(b testing.TB, port uint16) {
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

func download(b testing.TB, port uint16, size int64) {
	b.Helper()
	if err := move(b.Context(), http.MethodGet, address(port, "large"), nil, func(text []byte) bool { return int64(len(text)) == size }); err != nil {
		b.Fatal(err)
	}
}

func upload(b testing.TB, port uint16, size int64) {
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
