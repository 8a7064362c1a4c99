package managementcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// The ports lie below Linux's range for outgoing connections (from 32768). A port of that range could be used by
// another connection while its component is stopped.
const (
	firstPort = 20000
	lastPort  = 29999
)

// etcdPeer names etcd's second port, for peers that do not exist.
const etcdPeer Component = "etcd peer"

// ports are the ports of the components on their common address.
type ports struct {
	host   string
	number map[Component]int
}

func choosePorts(host string) (ports, error) {
	chosen := ports{host: host, number: map[Component]int{}}
	taken := map[int]bool{}
	for _, name := range append([]Component{etcdPeer}, startOrder...) {
		port, err := freePort(host, taken)
		if err != nil {
			return chosen, fmt.Errorf("choosing a port for %s: %w", name, err)
		}
		taken[port] = true
		chosen.number[name] = port
	}
	return chosen, nil
}

// FreePort returns a port of the cluster's address without a listener, for a process beside the cluster. No component
// of the cluster uses it, also while that component is stopped.
func (c *Cluster) FreePort() (int, error) {
	taken := map[int]bool{}
	for _, port := range c.ports.number {
		taken[port] = true
	}
	var port int
	err := c.options.within(func() (err error) {
		port, err = freePort(c.ports.host, taken)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("choosing a port beside the management cluster: %w", err)
	}
	return port, nil
}

// freePort returns a port without a listener. That may change before its component starts.
func freePort(host string, taken map[int]bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if taken[port] {
			continue
		}
		listener, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", host, port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("no port of %s between %d and %d is free", host, firstPort, lastPort)
}

func (p ports) address(name Component) string { return fmt.Sprintf("%s:%d", p.host, p.number[name]) }
func (p ports) url(name Component) string     { return "https://" + p.address(name) }
