package machinespec

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// ours is the hash of the UID in the tests: printf 2f1c9a7d | sha256sum.
const (
	uid  = "2f1c9a7d"
	ours = "-d50afbcfa5"
)

func named(namespace, name string) *v1alpha1.SmolVM {
	vm := &v1alpha1.SmolVM{}
	vm.Namespace, vm.Name, vm.UID = namespace, name, types.UID(uid)
	return vm
}

func TestTheNameOfAMachine(t *testing.T) {
	longest := strings.Repeat("n", 63)
	for name, test := range map[string]struct{ namespace, name, want string }{
		"as smolvm-operator names it": {"team-a", "web-1", "k8s-team-a-web-1" + ours},
		"dots":                        {"team-a", "web.example.org", "k8s-team-a-web-example-org" + ours},
		"dashes":                      {"team--a", "web---1", "k8s-team-a-web-1" + ours},
		"a dot beside a dash":         {"team-a", "web.-1", "k8s-team-a-web-1" + ours},
		"exactly as long as possible": {longest, strings.Repeat("a", 49), "k8s-" + longest + "-" + strings.Repeat("a", 49) + ours},
		"too long":                    {longest, strings.Repeat("a", 253), "k8s-" + longest + "-" + strings.Repeat("a", 49) + ours},
		"too long, with a dash there": {longest, strings.Repeat("a", 48) + "-" + strings.Repeat("b", 9), "k8s-" + longest + "-" + strings.Repeat("a", 48) + ours},
	} {
		t.Run(name, func(t *testing.T) {
			got := Name(named(test.namespace, test.name))
			if got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
			if len(got) > 128 || !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*[A-Za-z0-9]$`).MatchString(got) || strings.Contains(got, "--") {
				t.Errorf("smolvm does not take the name %s", got)
			}
		})
	}
}

// TestAStoredNameIsThatOfNoOtherMachine: who may write the status gets no machine that is not the SmolVM's.
func TestAStoredNameIsThatOfNoOtherMachine(t *testing.T) {
	const computed = "k8s-team-a-web-1" + ours
	for name, test := range map[string]struct{ stored, want string }{
		"one of smolvm-operator, with a dot":          {"k8s-team-a-web.1" + ours, "k8s-team-a-web.1" + ours},
		"one that people made":                        {"build-host", computed},
		"one that people made, with the prefix":       {"k8s-build-host", computed},
		"one that people made, with the hash":         {"build-host" + ours, computed},
		"that of another SmolVM":                      {"k8s-team-b-web-0000000000", computed},
		"that of another SmolVM, with more of a hash": {"k8s-team-b-web-0" + strings.TrimPrefix(ours, "-"), computed},
	} {
		t.Run(name, func(t *testing.T) {
			vm := named("team-a", "web.1")
			vm.Status.MachineName = test.stored
			if got := Name(vm); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}

func TestNamesThatBecomeTheSameAreToldApart(t *testing.T) {
	a, b := named("team-a", "web.1"), named("team-a", "web-1")
	b.UID = "another"
	if Name(a) == Name(b) {
		t.Errorf("two machines have the name %s", Name(a))
	}
}

func TestWhatIsWrongWithASpec(t *testing.T) {
	for name, test := range map[string]struct {
		spec  v1alpha1.SmolVMSpec
		bound string
		want  string
	}{
		"nothing":                        {spec: v1alpha1.SmolVMSpec{Image: "a"}},
		"nothing, with a file":           {spec: v1alpha1.SmolVMSpec{From: "a", NodeName: "n1"}, bound: "n1"},
		"another node":                   {spec: v1alpha1.SmolVMSpec{Image: "a", NodeName: "n2"}, bound: "n1", want: `spec.nodeName is immutable after binding; machine is owned by node "n1"`},
		"two sources":                    {spec: v1alpha1.SmolVMSpec{Image: "a", From: "b"}, want: "spec.image and spec.from are mutually exclusive"},
		"no source":                      {want: "one of spec.image or spec.from is required"},
		"a host port twice":              {spec: v1alpha1.SmolVMSpec{Image: "a", Network: v1alpha1.Network{Ports: []v1alpha1.Port{{HostPort: 1}, {HostPort: 2}, {HostPort: 1}}}}, want: "duplicate hostPort 1"},
		"no network":                     {spec: v1alpha1.SmolVMSpec{Image: "a", Network: v1alpha1.Network{AllowedCIDRs: []string{"192.0.2.0/24", "a"}}}, want: `invalid allowedCIDR "a": netip.ParsePrefix("a"): no '/'`},
		"a network with bits of a host":  {spec: v1alpha1.SmolVMSpec{Image: "a", Network: v1alpha1.Network{AllowedCIDRs: []string{"192.0.2.7/24"}}}},
		"all at once: the first is said": {spec: v1alpha1.SmolVMSpec{NodeName: "n2", Network: v1alpha1.Network{AllowedCIDRs: []string{"a"}}}, bound: "n1", want: `spec.nodeName is immutable after binding; machine is owned by node "n1"`},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1alpha1.SmolVM{Spec: test.spec}
			vm.Status.NodeName = test.bound
			got := ""
			if err := Validate(vm); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheRequest(t *testing.T) {
	vm := named("team-a", "web-1")
	vm.Spec = v1alpha1.SmolVMSpec{Image: "nginx:1.27-alpine"}
	want := api.CreateRequest{
		Name: "k8s-team-a-web-1" + ours, Image: "nginx:1.27-alpine", Owner: &api.Owner{Cluster: "c", Namespace: "team-a", Name: "web-1", UID: uid},
		SpecHash: Hash(&vm.Spec),
	}
	if diff := cmp.Diff(want, Request(vm, "c")); diff != "" {
		t.Errorf("with nothing but an image (-want +got):\n%s", diff)
	}
	vm.Spec = v1alpha1.SmolVMSpec{
		From: "/a", Command: []string{"b"}, Args: []string{"c"}, Env: []v1alpha1.EnvVar{{Name: "D", Value: "e"}}, WorkingDir: "/f",
		Resources: v1alpha1.Resources{CPUs: 2, MemoryMiB: 1024}, Storage: v1alpha1.Storage{StorageGiB: 20, OverlayGiB: 10},
		Network: v1alpha1.Network{
			Enabled: true, AllowedCIDRs: []string{"192.0.2.7/24", "::ffff:192.0.2.7/120", "2001:DB8::1/32"}, Ports: []v1alpha1.Port{{HostPort: 65535, GuestPort: 80}, {HostPort: 65536, GuestPort: -1}},
		},
	}
	cpus, memory, storage, overlay := 2, int64(1024), int64(20), int64(10)
	want = api.CreateRequest{
		Name: want.Name, From: "/a", Entrypoint: []string{"b"}, Cmd: []string{"c"}, Env: []api.EnvVar{{Name: "D", Value: "e"}}, Workdir: "/f",
		CPUs: &cpus, MemoryMB: &memory, StorageGB: &storage, OverlayGB: &overlay,
		Network: true, AllowedCIDRs: &[]string{"192.0.2.0/24", "192.0.2.0/24", "2001:db8::/32"}, Ports: []api.Port{{Host: 65535, Guest: 80}, {}}, Owner: want.Owner,
		SpecHash: Hash(&vm.Spec),
	}
	if diff := cmp.Diff(want, Request(vm, "c")); diff != "" {
		t.Errorf("with everything (-want +got):\n%s", diff)
	}
}

// TestEveryFieldOfASpecIsAccountedFor fails when a field is added to the spec and forgotten in the request.
func TestEveryFieldOfASpecIsAccountedFor(t *testing.T) {
	inRequest := []string{"Image", "From", "Command", "Args", "Env", "WorkingDir", "Resources", "Storage", "Network"}
	elsewhere := []string{"Running", "NodeName", "NodeSelector", "Tolerations", "ImagePullSecrets"}
	var fields []string
	for field := range reflect.TypeFor[v1alpha1.SmolVMSpec]().Fields() {
		fields = append(fields, field.Name)
	}
	known := map[string]bool{}
	for _, name := range append(inRequest, elsewhere...) {
		known[name] = true
	}
	for _, name := range fields {
		if !known[name] {
			t.Errorf("spec has the field %s, and no request has it", name)
		}
	}
	if len(fields) != len(known) {
		t.Errorf("spec has the fields %v, the test knows %v", fields, known)
	}
}
