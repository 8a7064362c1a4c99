package chart_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/cmd/smolvm"
	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/microvm"
)

// The names of what runs SmolVMs, whatever the release is called.
const (
	smolVMController = "smolvm-controller"
	smolVMRuntime    = "smolvm-runtime"
)

// forSmolVMs returns whether an object is one of those that run SmolVMs.
func forSmolVMs(object *metav1.PartialObjectMetadata) bool {
	return strings.HasPrefix(object.Name, "smolvm") && object.Labels["app.kubernetes.io/name"] != release
}

// workloads are the parsed pods that run SmolVMs.
type workloads struct {
	controller appsv1.Deployment
	runtime    appsv1.DaemonSet
}

func parseWorkloads(t *testing.T, text string) workloads {
	t.Helper()
	var w workloads
	for document := range bytes.SplitSeq([]byte(text), []byte("\n---\n")) {
		var object metav1.PartialObjectMetadata
		decode(t, document, &object)
		switch object.Kind + "/" + object.Name {
		case "Deployment/" + smolVMController:
			decode(t, document, &w.controller)
		case "DaemonSet/" + smolVMRuntime:
			decode(t, document, &w.runtime)
		}
	}
	if w.controller.Name == "" || w.runtime.Name == "" {
		t.Fatalf("there are no workloads of SmolVMs in\n%s", text)
	}
	return w
}

func TestSmolVMsAreDefinedWhereTheyRunAndStay(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart, "files/smolvm/*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("the definitions are %v (%v)", files, err)
	}
	without, with := render(t), render(t, "--set=smolvm.enabled=true")
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(strings.TrimSpace(strings.TrimPrefix(string(text), "---\n")), "\n  annotations:\n", "\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)
		if !strings.Contains(with, want) {
			t.Errorf("%s is not rendered with the one change that it stays", path)
		}
	}
	if strings.Contains(without, "smolvm") {
		t.Error("without smolvm.enabled something of SmolVMs is rendered")
	}
}

// TestSmolVMsNeedNoOperator: without controllers there is nothing of the operator, and none of its rights.
func TestSmolVMsNeedNoOperator(t *testing.T) {
	for _, object := range parse(t, render(t, "--set-json=controllers=[]", "--set=smolvm.enabled=true")).all {
		if object.Kind != "CustomResourceDefinition" && !forSmolVMs(&object) {
			t.Errorf("there is %s %s", object.Kind, object.Name)
		}
	}
}

// TestOperatorDoesNotTakePodsOfSmolVMsForItsOwn: the selectors of the three workloads exclude each other.
func TestOperatorDoesNotTakePodsOfSmolVMsForItsOwn(t *testing.T) {
	text := render(t, "--values="+full)
	w, operator := parseWorkloads(t, text), parse(t, text).deployment
	names := map[string]bool{}
	for _, selector := range []*metav1.LabelSelector{operator.Spec.Selector, w.controller.Spec.Selector, w.runtime.Spec.Selector} {
		names[selector.MatchLabels["app.kubernetes.io/name"]] = true
	}
	if len(names) != 3 {
		t.Errorf("the selectors have the names %v, want three", names)
	}
}

func TestImagesOfSmolVMsComeFromWhereTheOperatorsDoes(t *testing.T) {
	for set, want := range map[string][2]string{
		"image.tag=": {"docker.io/kvm-operator/kvm-operator:" + project.Version(), "docker.io/kvm-operator/kvm-operator-smolvm-runtime:" + project.Version()},
		"image.registry=mirror.example.org,image.name=a/b,image.tag=v7": {"mirror.example.org/a/b:v7", "mirror.example.org/a/b-smolvm-runtime:v7"},
		"smolvm.image=r/c:1,smolvm.runtime.image=r/d:2":                 {"r/c:1", "r/d:2"},
	} {
		w := parseWorkloads(t, render(t, "--set=smolvm.enabled=true,"+set))
		if got := [2]string{w.controller.Spec.Template.Spec.Containers[0].Image, w.runtime.Spec.Template.Spec.Containers[0].Image}; got != want {
			t.Errorf("with %s the images are %v, want %v", set, got, want)
		}
	}
}

// TestValuesReachTheControllerOfSmolVMs: its arguments are settings of the daemon.
func TestValuesReachTheControllerOfSmolVMs(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		want   map[string]string
	}{
		"none": {"--set=smolvm.enabled=true", map[string]string{
			flag.Controllers: "[smolvm]", flag.KubernetesInCluster: "true", flag.ServerListenAddress: "http://:8000", flag.LeaderElectionName: smolVMController,
		}},
		"all": {"--values=" + full, map[string]string{
			flag.Controllers: "[smolvm]", flag.KubernetesInCluster: "true", flag.ServerListenAddress: "http://:8000", flag.LeaderElectionName: smolVMController,
			flag.LeaderElectionDuration: "30s", flag.SmolVMCAFile: "/var/run/kvm-operator/smolvm-ca/ca.crt", flag.SmolVMPullSecrets: "true",
			flag.ServerEnableDebugServer: "true", flag.ServerLogAccess: "true", flag.ServerLogFormat: "text", flag.ServerLogLevel: "debug",
		}},
	} {
		container := parseWorkloads(t, render(t, c.values)).controller.Spec.Template.Spec.Containers[0]
		fs := register()
		if err := fs.Parse(container.Args[1:]); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, notDefault(fs)); diff != "" {
			t.Errorf("with values %s: settings (-want +got):\n%s", name, diff)
		}
		mounted(t, container, []string{fs.Lookup(flag.SmolVMTokenFile).Value.String(), c.want[flag.SmolVMCAFile]})
	}
}

// mounted checks that files are in directories that are mounted.
func mounted(t *testing.T, container corev1.Container, files []string) {
	t.Helper()
	for _, file := range files {
		if file != "" && !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.TrimSuffix(m.MountPath, "/") == filepath.Dir(file) }) {
			t.Errorf("container %s has no %s", container.Name, file)
		}
	}
}

// flagsOf parses arguments as a command does, and returns the flags that were set.
func flagsOf(t *testing.T, fs *pflag.FlagSet, arguments []string) map[string]string {
	t.Helper()
	if err := fs.Parse(arguments); err != nil {
		t.Fatalf("%v: %s", arguments, err)
	}
	if fs.NArg() > 0 {
		t.Errorf("%v has the arguments %v", arguments, fs.Args())
	}
	set := map[string]string{}
	fs.Visit(func(f *pflag.Flag) { set[f.Name] = f.Value.String() })
	return set
}

// TestValuesReachTheRuntime: its command is one of the program, and what it starts is one of smolvm.
func TestValuesReachTheRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		values         string
		runtime, serve map[string]string
	}{
		"none": {"--set=smolvm.enabled=true", map[string]string{
			"bind-address": ":9443", "daemonset": smolVMRuntime, "orphan-cleanup-policy": "none", "token-file": "/var/run/kvm-operator/smolvm/token",
		}, map[string]string{
			"listen": "unix:///var/run/smolvm/smolvm.sock", "cgroup-root": "/host/cgroup", "cgroup-parent": "/smolvm", "publish-address": "0.0.0.0", "publish-ports": "1024-10247,10260-65535", "egress-floor": "strict",
		}},
		"all": {"--values=" + full, map[string]string{
			"bind-address": ":9443", "daemonset": smolVMRuntime, "orphan-cleanup-policy": "delete", "token-file": "/var/run/kvm-operator/smolvm/token",
			"tls-cert-file": "/var/run/kvm-operator/tls/tls.crt", "tls-private-key-file": "/var/run/kvm-operator/tls/tls.key", "allow-emulation": "true",
		}, map[string]string{
			"listen": "unix:///var/run/smolvm/smolvm.sock", "cgroup-root": "/host/cgroup", "cgroup-parent": "/kvm-operator/smolvm", "publish-address": "192.0.2.1", "publish-ports": "20000-29999,8080",
			"egress-floor": "metadata", "egress-allow": "[10.20.0.0/16,fd00:20::/64]", "registry-mirror": "[docker.io=mirror.example.org:5000,quay.io=mirror.example.org]",
			"registry-insecure": "[mirror.example.org:5000]", "registry-ca": "/var/run/kvm-operator/registry/ca.crt", "registry-config": "/var/run/kvm-operator/registry-config", "allow-emulation": "true",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			container := parseWorkloads(t, render(t, c.values)).runtime.Spec.Template.Spec.Containers[0]
			command, _, err := cmd.New().Find(container.Command[1:2])
			if err != nil || command.Name() != "runtime" {
				t.Fatalf("%v is the command %s (%v)", container.Command, command.Name(), err)
			}
			got := flagsOf(t, command.Flags(), container.Command[2:])
			serve := strings.Fields(got["smolvm-serve-command"])
			delete(got, "smolvm-serve-command")
			if diff := cmp.Diff(c.runtime, got); diff != "" {
				t.Errorf("the runtime's flags (-want +got):\n%s", diff)
			}
			started, _, err := smolvm.New().Find(serve[1:3])
			if err != nil || serve[0] != "smolvm" || started.Name() != "start" {
				t.Fatalf("%v is the command %s (%v)", serve, started.Name(), err)
			}
			if diff := cmp.Diff(c.serve, flagsOf(t, started.Flags(), serve[3:])); diff != "" {
				t.Errorf("smolvm's flags (-want +got):\n%s", diff)
			}
			mounted(t, container, []string{got["token-file"], got["tls-cert-file"], got["tls-private-key-file"], c.serve["registry-ca"], c.serve["cgroup-root"] + "/x"})
			if directory := c.serve["registry-config"]; directory != "" {
				mounted(t, container, []string{directory + "/config.json"})
			}
		})
	}
}

// TestPortsOfKubernetesStayClosed: by default, no machine takes a privileged port, or one of a component of Kubernetes.
func TestPortsOfKubernetesStayClosed(t *testing.T) {
	container := parseWorkloads(t, render(t, "--set=smolvm.enabled=true")).runtime.Spec.Template.Spec.Containers[0]
	serve := strings.Fields(flagsOf(t, runtimeFlags(t), container.Command[2:])["smolvm-serve-command"])
	start, _, err := smolvm.New().Find(serve[1:3])
	if err != nil {
		t.Fatal(err)
	}
	ports, err := microvm.ParsePortRanges(flagsOf(t, start.Flags(), serve[3:])["publish-ports"])
	if err != nil {
		t.Fatal(err)
	}
	for port, open := range map[uint16]bool{
		22: false, 443: false, 1023: false, 10248: false, 10249: false, 10250: false, 10255: false, 10256: false, 10257: false, 10259: false,
		1024: true, 8080: true, 10247: true, 10260: true, 18080: true, 65535: true,
	} {
		if ports.Contains(port) != open {
			t.Errorf("port %d is open: %t", port, !open)
		}
	}
}

// runtimeFlags are those of the command that the chart runs on nodes.
func runtimeFlags(t *testing.T) *pflag.FlagSet {
	t.Helper()
	command, _, err := cmd.New().Find([]string{"runtime"})
	if err != nil {
		t.Fatal(err)
	}
	return command.Flags()
}

// TestARuntimeHasTimeToPowerItsMachinesDown: its grace period is longer than a drain and the end of smolvm together.
func TestARuntimeHasTimeToPowerItsMachinesDown(t *testing.T) {
	pod := parseWorkloads(t, render(t, "--set=smolvm.enabled=true")).runtime.Spec.Template.Spec
	if *pod.TerminationGracePeriodSeconds < 100 {
		t.Errorf("it has %d seconds", *pod.TerminationGracePeriodSeconds)
	}
	if !pod.HostPID || !pod.HostNetwork || !*pod.Containers[0].SecurityContext.Privileged {
		t.Error("its machines would not outlive it")
	}
}

// TestWhatIsRequestedIsTheCapacity: a runtime that requests nothing offers what Kubernetes may give to pods.
func TestWhatIsRequestedIsTheCapacity(t *testing.T) {
	for set, want := range map[string][]string{
		"smolvm.requests=null":                             nil,
		"smolvm.requests.cpu=4":                            {"CAPACITY_CPUS"},
		"smolvm.requests.memory=8Gi":                       {"CAPACITY_MEMORY_MIB"},
		"smolvm.requests.cpu=4,smolvm.requests.memory=8Gi": {"CAPACITY_CPUS", "CAPACITY_MEMORY_MIB"},
	} {
		container := parseWorkloads(t, render(t, "--set=smolvm.enabled=true,"+set)).runtime.Spec.Template.Spec.Containers[0]
		var got []string
		for _, variable := range container.Env {
			if strings.HasPrefix(variable.Name, "CAPACITY_") {
				got = append(got, variable.Name)
			}
		}
		if !slices.Equal(got, want) || len(container.Resources.Requests) != len(want) {
			t.Errorf("with %s the variables are %v and the requests %v", set, got, container.Resources.Requests)
		}
	}
}
