package usernet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}

// TestConnectionsAreBounded: what one client can make this process hold leaves something for others, what all of them can
// is bounded, and a connection that ends makes room.
func TestConnectionsAreBounded(t *testing.T) {
	port := unused(t)
	g, n := newGuest(t, func(o *Options) { o.Ports = []Port{SamePort(TCP, port)} })
	inside, err := gonet.ListenTCP(g.Stack, n.guest(port), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, inside)
	connect := func(client string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
		conn, err := dialer.Dial("tcp4", netip.AddrPortFrom(localhost, port).String())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = conn.Read(make([]byte, 64))
		return conn, err
	}
	before := heap()
	const ofOne = maxFlows * greed / (greed + 1)
	var last net.Conn
	for range ofOne {
		if last, err = connect("127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d connections take %d KiB each, with those of the guest that is made up", ofOne, (heap()-before)>>10/ofOne)
	if _, err := connect("127.0.0.1"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one connection too many of a client gets %v", err)
	}
	for client := byte(2); ; client++ {
		if _, err := connect(net.IPv4(127, 0, 0, client).String()); err != nil {
			if client == 2 || !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("client %d gets %v", client, err)
			}
			break
		}
		if client == maxFlows-ofOne+2 {
			t.Fatal("more connections are taken than there may be")
		}
	}
	_ = last.Close()
	eventually(t, "there is room after a connection has ended", func() bool { _, err := connect("127.1.0.1"); return err == nil })
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// TestSharesLeaveSomething: a client that takes all it gets leaves something for the next one. What is given back is
// free again, and then no client is remembered.
func TestSharesLeaveSomething(t *testing.T) {
	s := newShares(maxFlows)
	client := netip.MustParseAddr("10.0.0.1")
	for i, want := range []int{384, 96, 24, 6, 2, 0} {
		got := 0
		for s.take(client) {
			got++
		}
		if got != want {
			t.Errorf("client %d gets %d instead of %d", i+1, got, want)
		}
		client = client.Next()
	}
	for s.taken > 0 {
		for client := range s.held {
			s.give(client)
		}
	}
	if len(s.held) != 0 || !s.take(client) {
		t.Errorf("%d clients are remembered", len(s.held))
	}
}

// TestSessionsAreBounded: the session that was silent longest ends.
func TestSessionsAreBounded(t *testing.T) {
	s := newSessions(maxSessions)
	first, _ := s.begin(t.Context(), netip.Addr{})
	var last context.Context
	for range maxSessions {
		last, _ = s.begin(t.Context(), netip.Addr{})
	}
	if first.Err() == nil || last.Err() != nil || s.all.Len() != maxSessions {
		t.Errorf("of %d sessions the first ended: %v, the last: %v", s.all.Len(), first.Err(), last.Err())
	}
}

// TestSessionsOfOneClient: a client that sends from all of its ports ends its own sessions, not those of others, and is
// slower than all clients together may be.
func TestSessionsOfOneClient(t *testing.T) {
	s := newSessions(maxSessions)
	flood, quiet := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	spared, session := s.begin(t.Context(), quiet)
	for range 2 * maxSessions {
		s.begin(t.Context(), flood)
	}
	if got := s.owners[flood].owned.Len(); spared.Err() != nil || got > maxSessions*greed/(greed+1)+1 {
		t.Errorf("the client has %d sessions, and the other one's ended: %v", got, spared.Err())
	}
	admitted := 0
	for range newClients {
		if s.admits(flood) {
			admitted++
		}
	}
	if admitted < newOfOne || admitted > newOfOne+newClients/10 || !s.admits(netip.MustParseAddr("10.0.0.3")) {
		t.Errorf("%d sessions of %d may be begun", admitted, newClients)
	}
	s.ended(session)
	s.ended(session)
	if s.owners[quiet] != nil || spared.Err() == nil {
		t.Error("a client is remembered without sessions")
	}
}

func TestBoundsFitTheProcess(t *testing.T) {
	for descriptors, want := range map[uint64]bounds{
		1 << 40: {flows: 512, sessions: 1024, closing: 64, queries: 64},
		4096:    {flows: 512, sessions: 1024, closing: 64, queries: 64},
		1024:    {flows: 128, sessions: 256, closing: 16, queries: 16},
	} {
		got := boundsWithin(descriptors)
		if got != want || uint64(got.descriptors()) > descriptors*3/5 {
			t.Errorf("%d descriptors give %+v, which use %d", descriptors, got, got.descriptors())
		}
	}
	if got := boundsWithin(4096).descriptors(); got != 2304 {
		t.Errorf("a guest uses %d descriptors; the package says something else", got)
	}
}

// TestGuestCannotExhaustDescriptors: a guest sends to many addresses as fast as it can. The sockets of the process stay
// within the bounds, what is refused is reported, and later datagrams get through.
func TestGuestCannotExhaustDescriptors(t *testing.T) {
	sink, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	to := full(sink.LocalAddr().(*net.UDPAddr).AddrPort())
	var refused atomic.Int64
	g, n := newGuest(t, func(o *Options) {
		o.Refused = func(_ string, _ netip.AddrPort, reason string) {
			if reason == tooMany {
				refused.Add(1)
			}
		}
	})
	const most = 40
	n.sockets, n.fromGuest = make(slots, most), newSessions(most-8)
	before, worst := openFiles(t), 0
	for i := range 2000 {
		conn, err := gonet.DialUDP(g.Stack, nil, &to, ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte("more"))
		_ = conn.Close()
		if i%50 == 0 {
			worst = max(worst, openFiles(t)-before)
		}
	}
	if worst > most+5 {
		t.Errorf("the guest makes the process open %d files", worst)
	}
	t.Logf("at most %d files are open, %d datagrams are refused", worst, refused.Load())
	eventually(t, "datagrams get through", func() bool {
		conn, err := gonet.DialUDP(g.Stack, nil, &to, ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte("later"))
		_ = sink.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		for datagram := make([]byte, 64); ; {
			length, _, err := sink.ReadFrom(datagram)
			if err != nil || string(datagram[:length]) == "later" {
				return err == nil
			}
		}
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestGuestOpensTooMany: connections of the guest beyond the bound are reset and reported.
func TestGuestOpensTooMany(t *testing.T) {
	_, server := listen(t)
	reported := make(chan string, 1)
	g, n := newGuest(t, func(o *Options) {
		o.Refused = func(protocol string, to netip.AddrPort, reason string) {
			reported <- protocol + " " + to.String() + " " + reason
		}
	})
	n.outward = make(slots, 2)
	for range 2 {
		conn, err := g.dial(t, server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if conn, err := g.dial(t, server); err == nil {
		_ = conn.Close()
		t.Error("the guest gets one connection too many")
	}
	if got, want := <-reported, "tcp "+server.String()+" "+tooMany; got != want {
		t.Errorf("reported is %q instead of %q", got, want)
	}
}
