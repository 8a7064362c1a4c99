package machinespec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// hashPrefix starts every digest of this package, so that a digest of the runtime's own, which a machine has that another
// client made, is not compared with it. Its number changes with what the digest covers.
const hashPrefix = "smolvm1"

// created is what a machine is created with and cannot be changed. The order of fields is part of the digest. Sizes of
// disks are not in it, because they grow.
type created struct {
	Image, From   string
	Command, Args []string
	Env           []v1alpha1.EnvVar
	WorkingDir    string
	CPUs, Memory  int32
	Network       bool
	AllowedCIDRs  []string
	Ports         []v1alpha1.Port
}

// Hash returns the digest of everything in a spec that a machine is created with and that cannot be changed: two specs
// that lead to the same machine have the same one. It is letters and digits.
func Hash(spec *v1alpha1.SmolVMSpec) string {
	c := created{
		Image: spec.Image, From: spec.From, WorkingDir: spec.WorkingDir, Network: spec.Network.Enabled,
		Command: slices.Concat([]string{}, spec.Command), Args: slices.Concat([]string{}, spec.Args),
		CPUs:   cmp.Or(spec.Resources.CPUs, api.DefaultCPUs),
		Memory: cmp.Or(spec.Resources.MemoryMiB, api.DefaultMemoryMB),
		Env: slices.SortedFunc(slices.Values(spec.Env), func(a, b v1alpha1.EnvVar) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
		}),
		AllowedCIDRs: slices.Compact(slices.Sorted(slices.Values(Networks(spec.Network.AllowedCIDRs)))),
		Ports: slices.SortedFunc(slices.Values(spec.Network.Ports), func(a, b v1alpha1.Port) int {
			return cmp.Or(cmp.Compare(a.HostPort, b.HostPort), cmp.Compare(a.GuestPort, b.GuestPort))
		}),
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts and numbers can be written as JSON
	}
	sum := sha256.Sum256(text)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// IsHash returns whether a digest is one of this package.
func IsHash(digest string) bool { return strings.HasPrefix(digest, hashPrefix) }
