package smolvmruntime

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// maxConnections is how many connections the node API has at a time, and maxPerSource how many of one address. Every pod
	// of the cluster can open some.
	maxConnections, maxPerSource = 256, 64
)

// crowd is a listener that closes connections beyond its bounds at once.
type crowd struct {
	net.Listener

	most, mostOfOne int

	mu    sync.Mutex
	all   int
	ofOne map[string]int
}

func newCrowd(l net.Listener, most, mostOfOne int) *crowd {
	return &crowd{Listener: l, most: most, mostOfOne: mostOfOne, ofOne: map[string]int{}}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		connection, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := sourceOf(connection.RemoteAddr().String())
		if c.enter(source) {
			return &member{Conn: connection, leave: sync.OnceFunc(func() { c.leave(source) })}, nil
		}
		_ = connection.Close()
	}
}

func (c *crowd) enter(source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.ofOne[source] >= c.mostOfOne {
		return false
	}
	c.all++
	c.ofOne[source]++
	return true
}

func (c *crowd) leave(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.ofOne[source]--; c.ofOne[source] == 0 {
		delete(c.ofOne, source)
	}
}

// member is a connection that a crowd counts.
type member struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (c *member) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// sourceOf returns the address of a client without its port. An IPv4 address has one form.
func sourceOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	return at.Addr().Unmap().WithZone("").String()
}
