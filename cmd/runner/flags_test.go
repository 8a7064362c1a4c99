package runner

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/resolvconf"
)

// nodePods are golden files of the operator. They are the contract between what it renders and what the runner reads.
const nodePods = "../../service/controller/cluster/testdata"

func TestRunnerUnderstandsEveryNodePod(t *testing.T) {
	files, err := filepath.Glob(nodePods + "/golden/*/deployment/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no rendered node pods", err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, nodePods), func(t *testing.T) {
			container := read(t, file).Spec.Template.Spec.Containers[0]
			environment := map[string]string{}
			for _, v := range container.Env {
				environment[v.Name] = v.Value
				if v.ValueFrom != nil {
					environment[v.Name] = "from-the-pod"
				}
			}
			settings, err := load(flags(), func(name string) (string, bool) { value, ok := environment[name]; return value, ok })
			if err != nil {
				t.Fatal(err)
			}
			for name := range environment {
				if !known(name) {
					t.Errorf("the runner does not know the variable %s", name)
				}
			}
			var mounts []string
			for _, m := range container.VolumeMounts {
				mounts = append(mounts, m.MountPath)
			}
			for _, path := range append([]string{settings.Images, settings.State, filepath.Dir(settings.BootData[0]), filepath.Dir(settings.BootData[1])}, exclusive(settings)...) {
				if !within(mounts, path) {
					t.Errorf("%s is not on a volume of the pod", path)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	environment := map[string]string{
		"HOSTNAME": "worker-1", "CORES": "4", "MEMORY": "3072M", "DISK_OS": "5G", "DISK_DOCKER": "50G", "DISK_KUBELET": "5G",
		"DNS_SERVERS": "10.0.0.1,10.0.0.2", "NTP_SERVERS": "10.0.0.3,pool.ntp.example", "CLOUD_CONFIG_PATH": "/cloudconfig/user_data",
		"CLOUD_CONFIG_PRIVATE_PATH": "/private/user_data", "FLATCAR_CHANNEL": "beta", "FLATCAR_VERSION": "1.2.3",
		"HOST_DATA_VOLUME_PATHS": "logs:/data/logs,db:/data/db", "ACCELERATION": "tcg", "ROLE": "worker",
	}
	fs := flags()
	if err := fs.Parse([]string{"--cpus=2", "--hold-timeout=5m"}); err != nil {
		t.Fatal(err)
	}
	got, err := load(fs, func(name string) (string, bool) { value, ok := environment[name]; return value, ok })
	if err != nil {
		t.Fatal(err)
	}
	timeouts := keeper.DefaultTimeouts
	timeouts.Hold = 5 * time.Minute
	want := noderunner.Settings{
		Settings: keeper.Settings{
			Name: "worker-1", Run: "/run/kvm-operator", QEMU: "qemu-system-x86_64", QEMUUser: keeper.QEMUUser, Timeouts: timeouts,
		},
		Source:      osimage.Source{Image: osimage.FlatcarFrom(osimage.FlatcarMirror, "beta", "1.2.3"), Images: "/usr/code/images", MaxImageFile: 8 << 30},
		MachineType: "q35", CPUs: 2, Memory: 3072,
		Disks:      []noderunner.Disk{{Serial: "rootfs", Size: 5 << 30}, {Serial: "dockerfs", Size: 50 << 30}, {Serial: "kubeletfs", Size: 5 << 30}},
		DNSServers: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, NTPServers: []netip.Addr{netip.MustParseAddr("10.0.0.3")},
		BootData: []string{"/cloudconfig/user_data", "/private/user_data"}, State: "/usr/code/rootfs",
		Shares: []noderunner.Share{{Tag: "logs", Path: "/data/logs"}, {Tag: "db", Path: "/data/db"}}, Network: "pod",
		Acceleration: qemu.Mode("tcg"), ExtraArgs: []string{}, Health: 10248,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		arguments   []string
		environment map[string]string
		want        string
	}{
		"nothing at all":                  {nil, nil, "the name of the machine is missing"},
		"no image":                        {nil, nil, "neither an image nor --flatcar-version (FLATCAR_VERSION)"},
		"no boot data":                    {nil, nil, "the path of the boot data is missing"},
		"a number that is none":           {nil, map[string]string{"CORES": "many"}, "variable CORES"},
		"memory without sense":            {nil, map[string]string{"MEMORY": "much"}, "--memory (MEMORY)"},
		"a disk without size":             {[]string{"--disk=rootfs"}, nil, "--disk: rootfs"},
		"a disk of no size":               {nil, map[string]string{"DISK_OS": "big"}, "--disk: rootfs:big"},
		"a share without path":            {nil, map[string]string{"HOST_DATA_VOLUME_PATHS": "logs"}, "--shares (HOST_DATA_VOLUME_PATHS)"},
		"a DNS server that is a name":     {[]string{"--dns-servers=dns.example"}, nil, "--dns-servers (DNS_SERVERS)"},
		"an image that is no JSON":        {nil, map[string]string{"GUEST_IMAGE": "flatcar"}, "--image (GUEST_IMAGE)"},
		"a network that is not one":       {[]string{"--network=host"}, nil, `the network is "host"`},
		"an acceleration that is none":    {whole("--acceleration=bogus"), nil, `the acceleration is "bogus"`},
		"a disk outside of the directory": {whole("--disk=../evil:64M"), nil, "Disks[0].Serial"},
		"two disks of one serial number":  {whole("--disk=a:64M", "--disk=a:64M"), nil, "Serial"},
		"a machine type that is none":     {whole("--machine=bogus"), nil, "Type"},
		"a port that is none":             {whole("--health-port=99999"), nil, "the health port is 99999"},
		"a hold of less than nothing":     {whole("--hold-timeout=-1s"), nil, "have to be positive"},
		"a path too long for a socket":    {whole("--run=/" + strings.Repeat("x", 100)), nil, "longer than the path of a socket can be"},
		"a time-out that is nothing":      {[]string{"--quit-timeout=0s"}, nil, "the timeouts have to be more than nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := flags()
			if err := fs.Parse(test.arguments); err != nil {
				t.Fatal(err)
			}
			_, err := load(fs, func(name string) (string, bool) { value, ok := test.environment[name]; return value, ok })
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestForeignSourcesAreOffByDefault: the operator leaves the variable out, so it does not make running nodes outdated.
func TestForeignSourcesAreOffByDefault(t *testing.T) {
	for value, want := range map[string]bool{"": false, "true": true, "false": false} {
		settings, _ := load(flags(), func(name string) (string, bool) { return value, name == "FOREIGN_SOURCES" }) // what else is missing does not matter
		if settings.ForeignSources != want {
			t.Errorf("FOREIGN_SOURCES=%q: got %t, want %t", value, settings.ForeignSources, want)
		}
	}
}

func TestSearchDomains(t *testing.T) {
	fs := flags()
	if err := fs.Parse([]string{"--search-domains=a.cluster.local,cluster.local."}); err != nil {
		t.Fatal(err)
	}
	r := reader{fs: fs}
	if diff := cmp.Diff([]string{"a.cluster.local", "cluster.local"}, r.searchDomains()); diff != "" || len(r.errs) != 0 {
		t.Errorf("%v (-want +got):\n%s", r.errs, diff)
	}
}

func TestResolverEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("# comment\nsearch a b\nnameserver 10.0.0.1\nnameserver\t10.0.0.2\nnameserver\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := resolvconf.Entries(path, "nameserver")
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = resolvconf.Entries(path, "search")
	if diff := cmp.Diff([]string{"a", "b"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := resolvconf.Entries(path+"x", "nameserver"); err != nil || got != nil {
		t.Errorf("without the file: %v, %v", got, err)
	}
}

// whole returns arguments that are complete, plus further ones.
func whole(further ...string) []string {
	return append([]string{"--name=vm", "--boot-data=/user_data", "--flatcar-version=1.2.3"}, further...)
}

func flags() *pflag.FlagSet {
	c := New()
	fs := c.Flags()
	fs.AddFlagSet(c.PersistentFlags())
	return fs
}

// known reports whether the runner reads a variable. ROLE is for people who inspect a pod.
func known(name string) bool {
	for _, variable := range variables {
		if variable == name {
			return true
		}
	}
	for _, d := range diskVariables {
		if d.variable == name {
			return true
		}
	}
	return name == "ROLE"
}

func exclusive(s noderunner.Settings) []string {
	paths := compact(s.Etcd)
	for _, share := range s.Shares {
		paths = append(paths, share.Path)
	}
	return paths
}

func within(folders []string, path string) bool {
	for _, folder := range folders {
		if path == folder || strings.HasPrefix(path, folder+"/") {
			return true
		}
	}
	return false
}

func read(t *testing.T, file string) appsv1.Deployment {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		t.Fatal(err)
	}
	return deployment
}
