package cloudconfig

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
)

// The real kubelet parses the configuration strictly and validates it, together with a drop-in that it must reject: so
// it goes no further, and its messages are only about the configuration.
func TestTheRealKubeletAcceptsItsConfiguration(t *testing.T) {
	for name, params := range map[string]func() Params{"master": fullParams, "worker": volumesParams} {
		t.Run(name, func(t *testing.T) {
			data := mustRender(t, params())
			config := fileContent(t, data, kubeletConfigFile)
			output := refuse(t, config)
			// A single error has no brackets around it; a list of several has.
			if !strings.Contains(output, "error: invalid configuration: maxOpenFiles") || strings.Contains(output, "unknown field") {
				t.Errorf("the kubelet complains of more than the one mistake made on purpose:\n%s", output)
			}
			// The test can fail: on a field that does not exist, and on an invalid value.
			if output := refuse(t, config+"noSuchField: 1\n"); !strings.Contains(output, "unknown field") {
				t.Errorf("the kubelet does not mind an unknown field:\n%s", output)
			}
		})
	}
}

// refuse runs the kubelet with a configuration and one additional mistake, and returns its messages.
func refuse(t *testing.T, config string) string {
	dir := t.TempDir()
	dropins := filepath.Join(dir, "drop-ins")
	if err := os.Mkdir(dropins, 0o755); err != nil {
		t.Fatal(err)
	}
	mistake := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxOpenFiles: -1\n"
	for path, text := range map[string]string{filepath.Join(dir, "kubelet.yaml"): config, filepath.Join(dropins, "99.conf"): mistake} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, tool(t, "kubelet"), "--config="+filepath.Join(dir, "kubelet.yaml"), "--config-dir="+dropins, "--root-dir="+dir)
	output, err := command.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("the kubelet was to refuse the configuration: %v\n%s", err, output)
	}
	return string(output)
}

// TestTheKernelIsAsTheKubeletWantsIt: the kubelet does not start if one of these differs, and the expected values are
// its own constants.
func TestTheKernelIsAsTheKubeletWantsIt(t *testing.T) {
	data := mustRender(t, workerParams())
	if !kubeletConfig(workerParams()).ProtectKernelDefaults {
		t.Fatal("the kubelet does not look")
	}
	set, last := map[string]string{}, ""
	for _, f := range data.Public.Storage.Files {
		if path.Dir(f.Path) != "/etc/sysctl.d" {
			continue
		}
		last = max(last, path.Base(f.Path))
		for line := range strings.Lines(content(t, f)) {
			if name, value, found := strings.Cut(line, "="); found && path.Base(f.Path) == "zz-kubelet.conf" {
				set[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
	}
	want := map[string]string{
		"vm.overcommit_memory": "1", "vm.panic_on_oom": "0", "kernel.panic": "10", "kernel.panic_on_oops": "1",
		"kernel.keys.root_maxkeys": "1000000", "kernel.keys.root_maxbytes": "25000000",
	}
	if !maps.Equal(set, want) || last != "zz-kubelet.conf" {
		t.Errorf("%s, which is read last, sets %v, want %v", last, set, want)
	}
}

// A small node keeps most of its memory for pods; a large one reserves what the original did.
func TestReservedMemoryFollowsThatOfTheNode(t *testing.T) {
	for memory, want := range map[int64][2]string{
		0:     {"768Mi", "384Mi"},
		1200:  {"200Mi", "100Mi"},
		2400:  {"400Mi", "200Mi"},
		4608:  {"768Mi", "384Mi"},
		65536: {"768Mi", "384Mi"},
	} {
		params := workerParams()
		params.Node.MemoryMiB = memory
		config := kubeletConfig(params)
		if got := [2]string{config.KubeReserved["memory"], config.SystemReserved["memory"]}; got != want {
			t.Errorf("of %d MiB, kubeReserved and systemReserved are %v, want %v", memory, got, want)
		}
	}
}

// The kubelet rejects pods that do not fit its processors, including static pods.
func TestAMasterWithOneProcessorHasRoomForItsPods(t *testing.T) {
	for cpus, want := range map[int64]string{0: "250m", 1: "62m", 2: "125m", 4: "250m", 64: "250m"} {
		params := masterParams()
		params.Node.CPUs = cpus
		config := kubeletConfig(params)
		if config.KubeReserved["cpu"] != want || config.SystemReserved["cpu"] != want {
			t.Errorf("of %d processors, %s and %s are set aside, want %s each", cpus, config.KubeReserved["cpu"], config.SystemReserved["cpu"], want)
		}
	}
	params := masterParams()
	params.Node.CPUs = 1
	left := resource.MustParse("1")
	for _, aside := range []map[string]string{kubeletConfig(params).KubeReserved, kubeletConfig(params).SystemReserved} {
		left.Sub(resource.MustParse(aside["cpu"]))
	}
	data := mustRender(t, params)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		left.Sub(*staticPod(t, data, name).Spec.Containers[0].Resources.Requests.Cpu())
	}
	objects, err := addOns(addons.Params{Cluster: params.Cluster, Versions: params.Versions, APIServerURL: params.APIServerURL})
	if err != nil {
		t.Fatal(err)
	}
	daemons := 0
	for _, object := range objects {
		if daemon, is := object.(*appsv1.DaemonSet); is {
			daemons++
			left.Sub(*daemon.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu())
		}
	}
	if daemons != 2 || left.Sign() < 0 {
		t.Errorf("with %d DaemonSets, want 2, %s of the processor is left", daemons, left.String())
	}
}

// TestASmallNodeIsNotUnderPressureFromTheBeginning: eviction thresholds are below its memory, and those of other nodes
// do not change.
func TestASmallNodeIsNotUnderPressureFromTheBeginning(t *testing.T) {
	for mib, want := range map[int64][2]string{488: {"97Mi", "162Mi"}, 953: {"190Mi", "317Mi"}, 1500: {"200Mi", "500Mi"}, 3814: {"200Mi", "500Mi"}, 0: {"200Mi", "500Mi"}} {
		p := workerParams()
		p.Node.MemoryMiB = mib
		c := kubeletConfig(p)
		if got := [2]string{c.EvictionHard["memory.available"], c.EvictionSoft["memory.available"]}; got != want {
			t.Errorf("%d MiB: pods are evicted below %v, want %v", mib, got, want)
		}
	}
}
