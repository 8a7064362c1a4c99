package machinespec

import (
	"reflect"
	"regexp"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

func whole() v1alpha1.SmolVMSpec {
	return v1alpha1.SmolVMSpec{
		Running: true, NodeName: "n1", NodeSelector: map[string]string{"a": "b"}, Image: "web:1", Command: []string{"a", "b"}, Args: []string{"c"},
		Env: []v1alpha1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, WorkingDir: "/srv",
		Resources: v1alpha1.Resources{CPUs: 2, MemoryMiB: 256}, Storage: v1alpha1.Storage{StorageGiB: 3, OverlayGiB: 4},
		Network: v1alpha1.Network{
			Enabled: true, AllowedCIDRs: []string{"192.0.2.0/24", "198.51.100.0/24"},
			Ports: []v1alpha1.Port{{HostPort: 8080, GuestPort: 80}, {HostPort: 8443, GuestPort: 443}},
		},
	}
}

// TestADigestNeverChanges: a machine keeps the digest that it was created with, so another one for the same spec would call
// every machine there is a changed one.
func TestADigestNeverChanges(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.SmolVMSpec
		want string
	}{
		"an image alone": {v1alpha1.SmolVMSpec{Image: "alpine:latest"}, "smolvm1e9c974d6cb93b5330769133f90fb2dd3dfcbdc1fc01cd2ebea9a1f5f0c71b3cc"},
		"everything":     {whole(), "smolvm18911697d74c1aeba8fcb9ddab585795c5f0833d100cbcbc7737920d70d2e4511"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Hash(&test.spec)
			if got != test.want || !IsHash(got) || !regexp.MustCompile(`^[0-9A-Za-z]{1,128}$`).MatchString(got) {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
	if IsHash("5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5") {
		t.Error("a digest of the runtime counts as ours")
	}
}

func TestWhatLeadsToAnotherMachineHasAnotherDigest(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.SmolVMSpec)
		same   bool
	}{
		"running":                     {func(s *v1alpha1.SmolVMSpec) { s.Running = false }, true},
		"node":                        {func(s *v1alpha1.SmolVMSpec) { s.NodeName, s.NodeSelector = "n2", nil }, true},
		"sizes":                       {func(s *v1alpha1.SmolVMSpec) { s.Storage = v1alpha1.Storage{StorageGiB: 30} }, true},
		"order of the environment":    {func(s *v1alpha1.SmolVMSpec) { s.Env[0], s.Env[1] = s.Env[1], s.Env[0] }, true},
		"order of ports and networks": {func(s *v1alpha1.SmolVMSpec) { reverse(s) }, true},
		"a network written otherwise": {func(s *v1alpha1.SmolVMSpec) { s.Network.AllowedCIDRs[0] = "192.0.2.9/24" }, true},
		"image":                       {func(s *v1alpha1.SmolVMSpec) { s.Image = "web:2" }, false},
		"from in place of image":      {func(s *v1alpha1.SmolVMSpec) { s.Image, s.From = "", "web:1" }, false},
		"words of the command":        {func(s *v1alpha1.SmolVMSpec) { s.Command = []string{"a b"} }, false},
		"command in place of args":    {func(s *v1alpha1.SmolVMSpec) { s.Command, s.Args = s.Args, s.Command }, false},
		"a value":                     {func(s *v1alpha1.SmolVMSpec) { s.Env[0].Value = "3" }, false},
		"directory":                   {func(s *v1alpha1.SmolVMSpec) { s.WorkingDir = "" }, false},
		"processors":                  {func(s *v1alpha1.SmolVMSpec) { s.Resources.CPUs = 3 }, false},
		"memory":                      {func(s *v1alpha1.SmolVMSpec) { s.Resources.MemoryMiB = 0 }, false},
		"network":                     {func(s *v1alpha1.SmolVMSpec) { s.Network.Enabled = false }, false},
		"networks":                    {func(s *v1alpha1.SmolVMSpec) { s.Network.AllowedCIDRs = s.Network.AllowedCIDRs[:1] }, false},
		"a port":                      {func(s *v1alpha1.SmolVMSpec) { s.Network.Ports[0].GuestPort = 81 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := whole(), whole()
			test.change(&after)
			if reflect.DeepEqual(before, after) {
				t.Fatal("nothing was changed")
			}
			if got := Hash(&before) == Hash(&after); got != test.same {
				t.Errorf("the same digest: %t, want %t", got, test.same)
			}
		})
	}
	bare, defaults := v1alpha1.SmolVMSpec{Image: "a"}, v1alpha1.SmolVMSpec{Image: "a", Command: []string{}, Resources: v1alpha1.Resources{CPUs: 1, MemoryMiB: 512}}
	if Hash(&bare) != Hash(&defaults) {
		t.Error("what is left out differs from its default")
	}
}

func reverse(s *v1alpha1.SmolVMSpec) {
	s.Network.Ports[0], s.Network.Ports[1] = s.Network.Ports[1], s.Network.Ports[0]
	s.Network.AllowedCIDRs[0], s.Network.AllowedCIDRs[1] = s.Network.AllowedCIDRs[1], s.Network.AllowedCIDRs[0]
}
