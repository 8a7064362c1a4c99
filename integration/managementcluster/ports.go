package managementcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Ports lie below the range that Linux gives to outgoing connections (from 32768): a port of that range could go to
// somebody's connection while its component is stopped.
const (
	firstPort = 20000
	lastPort  = 29999
)

// etcdPeer names etcd's second port, for peers that never come.
const etcdPeer Component = "etcd peer"

// ports are the loopback ports of the components.
type ports map[Component]int

func choosePorts() (ports, error) {
	chosen := ports{}
	taken := map[int]bool{}
	for _, name := range append([]Component{etcdPeer}, startOrder...) {
		port, err := freePort(taken)
		if err != nil {
			return nil, fmt.Errorf("choosing a port for %s: %w", name, err)
		}
		taken[port] = true
		chosen[name] = port
	}
	return chosen, nil
}

// freePort returns a port that nobody listens on at the moment; that may change before its component starts.
func freePort(taken map[int]bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if taken[port] {
			continue
		}
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("no loopback port between %d and %d is free", firstPort, lastPort)
}

func (p ports) address(name Component) string { return fmt.Sprintf("127.0.0.1:%d", p[name]) }
func (p ports) url(name Component) string     { return "https://" + p.address(name) }
