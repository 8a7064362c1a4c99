package agentwire

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

const (
	// ConfigName is the name of the Config in the machine's firmware configuration (fw_cfg).
	ConfigName = "opt/dev.smolvm/config"
	// MaxConfig bounds it, in bytes.
	MaxConfig = 1 << 20
	// DefaultGrace is how long a workload has after its stop signal.
	DefaultGrace = 8 * time.Second

	maxName = 64
)

// Serial numbers of the guest's disks. All three must be there.
const (
	// DiskRoot is the image's root: a squashfs that is only read.
	DiskRoot = "root"
	// DiskOverlay is an ext4 file system with what is written to the root.
	DiskOverlay = "overlay"
	// DiskStorage is an ext4 file system at /storage, whose directory workspace is /workspace.
	DiskStorage = "storage"
)

// Config is the guest's configuration at boot, as JSON.
type Config struct {
	// Name is the host name, of at most 64 bytes (HOST_NAME_MAX of the Linux kernel).
	Name string `json:"name"`
	// Process is the workload. Without arguments there is none.
	Process ociprocess.Process `json:"process"`
	// Network is that of eth0. Nil: there is only a loopback interface.
	Network *Network `json:"network,omitempty"`
	// Grace is how long the workload may take to end after its stop signal; 0 for DefaultGrace.
	Grace time.Duration `json:"grace,omitempty"`
}

// Network is the configuration of the guest's network interface, eth0.
type Network struct {
	// Address is the interface's, with the length of its network's prefix.
	Address netip.Prefix `json:"address"`
	// Gateway is where everything else is sent. It need not be within the prefix.
	Gateway netip.Addr `json:"gateway"`
	// DNS is the name server.
	DNS netip.Addr `json:"dns"`
	// MTU is in bytes; 0 for the interface's own.
	MTU int `json:"mtu,omitempty"`
}

// ParseConfig parses a Config and checks it.
func ParseConfig(text []byte) (Config, error) {
	var c Config
	if len(text) > MaxConfig {
		return Config{}, fmt.Errorf("the machine's configuration has %d bytes, and at most %d are allowed", len(text), MaxConfig)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return Config{}, fmt.Errorf("parsing the machine's configuration: %w", err)
	}
	if len(c.Name) > maxName || strings.ContainsAny(c.Name, " \t\n\x00") {
		return Config{}, fmt.Errorf("the machine's name %q has more than %d bytes, or spaces", c.Name, maxName)
	}
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	n := c.Network
	if n != nil && (!n.Address.IsValid() || !n.Gateway.IsValid() || !n.DNS.IsValid() || n.MTU < 0) {
		return Config{}, fmt.Errorf("the machine's network has no valid address, gateway, name server or MTU: %+v", *n)
	}
	return c, nil
}
