package cluster

import (
	"context"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
)

// scenario is what a rendering depends on.
type scenario struct {
	settings state.Settings
	config   *v1alpha1.KVMConfig
	inputs   Inputs
}

// settings are the operator's defaults.
func settings() state.Settings {
	return state.Settings{
		Machine:       state.MachineSettings{MaxImageFile: "8G", DiskRequestPercent: 100},
		Guest:         cloudconfig.Settings{RegistryDomain: "registry.k8s.io", BinaryBaseURL: "https://dl.k8s.io"},
		RunnerImage:   "docker.io/kvm-operator/kvm-operator:test",
		ClusterDomain: "cluster.local", FlatcarChannel: "stable", ClusterRole: "kvm-operator-node",
	}
}

func simple() scenario {
	return scenario{settings: settings(), config: fixture.MakeCluster("ab1cd").Workers(1).Obj()}
}

// full uses everything: etcd on volumes, host volumes, proxy, mirrors, OIDC, Ingresses, labels of Release and version,
// port mappings and SSH users.
func full() scenario {
	s := scenario{settings: settings()}
	s.settings.DNSServers, s.settings.IngressClass, s.settings.PSPClusterRole = []string{"10.0.0.2", "10.0.0.3"}, "nginx", "kvm-operator-psp"
	s.settings.PodCIDRs, s.settings.SharedHosts = []string{"10.244.0.0/16"}, true
	s.settings.Guest.RegistryMirrors = []string{"mirror.example.org", "second.example.org:5000"}
	s.settings.Guest.Proxy = cloudconfig.Proxy{
		HTTP: "http://proxy.example.org:3128", HTTPS: "http://proxy.example.org:3128", NoProxy: []string{"10.0.0.0/8", ".svc"},
	}
	s.settings.Guest.NTPServers = []string{"ntp.example.org"}
	s.settings.Guest.OIDC = v1alpha1.OIDC{
		ClientID: "kubernetes", IssuerURL: "https://dex.example.org", UsernameClaim: "email", UsernamePrefix: "oidc:", GroupsClaim: "groups",
	}
	s.config = fixture.MakeCluster("full1").Masters(3).Workers(5).Release("20.0.0", "4.0.0").EtcdOnVolume("20Gi").
		HostVolume(1, "data1", "/data/one").HostVolume(1, "images", "/data/two").HostVolume(4, "data2", "/data/one").
		With(func(spec *v1alpha1.KVMConfigSpec) {
			spec.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "ada", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA ada"}}
			spec.KVM.PortMappings = []v1alpha1.PortMapping{
				{Name: "http", NodePort: 30100, TargetPort: 30010}, {Name: "https", NodePort: 30101, TargetPort: 30011},
			}
			spec.KVM.Workers[2].Memory, spec.KVM.Workers[2].CPUs, spec.KVM.Workers[2].DockerVolumeSizeGB = "32G", 8, 100
			spec.KVM.Workers[3].Disk = 40.4
			spec.KVM.Network.Flannel.VNI = 26
			spec.Etcd = &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{
				Schedule: "0 */6 * * *", Keep: 28, Volume: v1alpha1.SnapshotVolume{NFS: &v1alpha1.NFSDirectory{Server: "nas.example.org", Path: "/srv/etcd"}},
			}}
		}).Obj()
	s.inputs = Inputs{
		Release: fixture.MakeRelease("20.0.0", "1.35.4"),
		Volumes: []corev1.PersistentVolume{*fixture.MakeVolume("pv1", "data1"), *fixture.MakeVolume("pv2", "images"), *fixture.MakeVolume("pv3", "data2")},
	}
	return s
}

// oldManifest is the smallest manifest that the original accepted, with the Release that its label names updated to
// versions that are supported today.
func oldManifest(t *testing.T) scenario {
	t.Helper()
	text, err := os.ReadFile("../../../pkg/apis/provider/v1alpha1/testdata/old-minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition, err := schema.New(helm.KVMConfigCRD)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	if err := definition.Complete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.KVMConfig{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, config); err != nil {
		t.Fatal(err)
	}
	return scenario{settings: settings(), config: config, inputs: Inputs{Release: fixture.MakeRelease("16.2.1", "1.35.4")}}
}

// render fails the test if anything cannot be rendered.
func (s scenario) render(t *testing.T) []Rendered {
	t.Helper()
	rendered, err := s.tryRender(t)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

func (s scenario) tryRender(t *testing.T) ([]Rendered, error) {
	t.Helper()
	return Render(t.Context(), s.settings, s.config, s.inputs)
}

// renderedFull and renderedSimple are renderings that several tests share and none changes.
var (
	renderedFull   = sync.OnceValues(func() ([]Rendered, error) { return renderAlone(full()) })
	renderedSimple = sync.OnceValues(func() ([]Rendered, error) { return renderAlone(simple()) })
)

func renderAlone(s scenario) ([]Rendered, error) {
	return Render(context.Background(), s.settings, s.config, s.inputs)
}

// must returns a rendering or fails the test.
func must(t *testing.T, rendered func() ([]Rendered, error)) []Rendered {
	t.Helper()
	r, err := rendered()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// objects returns the objects of a handler.
func objects(t *testing.T, rendered []Rendered, handler string) []client.Object {
	t.Helper()
	for _, r := range rendered {
		if r.Handler == handler {
			return r.Objects
		}
	}
	t.Fatalf("there is no handler %s", handler)
	return nil
}
