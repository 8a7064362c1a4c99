// Package machinespec turns a SmolVM into what the runtime of its node is asked for.
package machinespec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	// Prefix is that of the names of all machines that belong to SmolVMs.
	Prefix = "k8s-"

	// maxName is how long the name of a machine may be.
	maxName = 128
	// hashed is how many hexadecimal digits of the hash of a UID a name has.
	hashed = 10
)

// Name returns the name of the machine on its node: the one in status.machineName, else that of smolvm-operator,
// k8s-<namespace>-<name>-<hash>, where the hash is the first ten hexadecimal digits of the SHA-256 of the object's UID.
//
// smolvm refuses names with dots, with "--", or of more than 128 characters; such names are changed in the middle, and
// the hash still tells them apart.
//
// A stored name counts only with that hash. Users who may write the status could name any machine of a node there, also
// one that people made and that has no owner, and have it stopped or deleted.
func Name(vm *v1alpha1.SmolVM) string {
	sum := sha256.Sum256([]byte(vm.UID))
	end := "-" + hex.EncodeToString(sum[:])[:hashed]
	if stored := vm.Status.MachineName; strings.HasPrefix(stored, Prefix) && strings.HasSuffix(stored, end) {
		return stored
	}
	middle := strings.ReplaceAll(vm.Namespace+"-"+vm.Name, ".", "-")
	for strings.Contains(middle, "--") {
		middle = strings.ReplaceAll(middle, "--", "-")
	}
	if most := maxName - len(Prefix) - len(end); len(middle) > most {
		middle = strings.TrimSuffix(middle[:most], "-")
	}
	return Prefix + middle + end
}

// Validate returns an error with what smolvm-operator says against a spec. The API server refuses all of it except what
// it cannot see: that the node of the spec is not the one that has the machine.
func Validate(vm *v1alpha1.SmolVM) error {
	spec := &vm.Spec
	switch {
	case vm.Status.NodeName != "" && spec.NodeName != "" && spec.NodeName != vm.Status.NodeName:
		return fmt.Errorf("spec.nodeName is immutable after binding; machine is owned by node %q", vm.Status.NodeName)
	case spec.Image != "" && spec.From != "":
		return errors.New("spec.image and spec.from are mutually exclusive")
	case spec.Image == "" && spec.From == "":
		return errors.New("one of spec.image or spec.from is required")
	}
	ports := map[int32]bool{}
	for _, port := range spec.Network.Ports {
		if ports[port.HostPort] {
			return fmt.Errorf("duplicate hostPort %d", port.HostPort)
		}
		ports[port.HostPort] = true
	}
	for _, cidr := range spec.Network.AllowedCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return fmt.Errorf("invalid allowedCIDR %q: %w", cidr, err)
		}
	}
	return nil
}

// Request returns the request that creates the machine. cluster is the UID of the management cluster's namespace
// kube-system. What the spec leaves out, the request leaves to the runtime.
func Request(vm *v1alpha1.SmolVM, cluster types.UID) api.CreateRequest {
	spec := &vm.Spec
	r := api.CreateRequest{
		Name: Name(vm), Image: spec.Image, From: spec.From,
		Entrypoint: spec.Command, Cmd: spec.Args, Workdir: spec.WorkingDir,
		StorageGB: given(spec.Storage.StorageGiB), OverlayGB: given(spec.Storage.OverlayGiB), MemoryMB: given(int64(spec.Resources.MemoryMiB)),
		CPUs: given(int(spec.Resources.CPUs)), Network: spec.Network.Enabled, Ports: Ports(spec.Network.Ports),
		Owner: &api.Owner{Cluster: string(cluster), Namespace: vm.Namespace, Name: vm.Name, UID: string(vm.UID)}, SpecHash: Hash(spec),
	}
	for _, v := range spec.Env {
		r.Env = append(r.Env, api.EnvVar{Name: v.Name, Value: v.Value})
	}
	// An empty list means all networks here, and none to the runtime.
	if len(spec.Network.AllowedCIDRs) > 0 {
		networks := Networks(spec.Network.AllowedCIDRs)
		r.AllowedCIDRs = &networks
	}
	return r
}

func given[T int | int64](value T) *T {
	if value <= 0 {
		return nil
	}
	return &value
}

// Ports returns ports as the runtime has them. A port that is none, which the API server does not accept, becomes 0,
// which the runtime refuses.
func Ports(ports []v1alpha1.Port) []api.Port {
	var all []api.Port
	for _, port := range ports {
		all = append(all, api.Port{Host: port16(port.HostPort), Guest: port16(port.GuestPort)})
	}
	return all
}

func port16(port int32) uint16 {
	if port < 1 || port > math.MaxUint16 {
		return 0
	}
	return uint16(port)
}

// Networks returns networks in the form in which the runtime takes them: without bits of a host, and IPv4 as IPv4. What
// is no network is not changed.
func Networks(cidrs []string) []string {
	all := []string{}
	for _, cidr := range cidrs {
		all = append(all, network(cidr))
	}
	return all
}

func network(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return cidr
	}
	if address := prefix.Addr(); address.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(address.Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked().String()
}
