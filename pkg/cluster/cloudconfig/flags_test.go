package cloudconfig

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestFeatureGatesAreKnownToTheRealBinary: an API server does not start with an unknown feature gate.
func TestFeatureGatesAreKnownToTheRealBinary(t *testing.T) {
	help, err := exec.Command(tool(t, "kube-apiserver"), "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, arg := range staticPod(t, mustRender(t, golden["emulated-master"]()), "kube-apiserver").Spec.Containers[0].Command {
		gates, ok := strings.CutPrefix(arg, "--feature-gates=")
		if !ok {
			continue
		}
		for gate := range strings.SplitSeq(gates, ",") {
			found++
			name, _, _ := strings.Cut(gate, "=")
			if !strings.Contains(string(help), "kube:"+name+"=") {
				t.Errorf("the API server does not know %s", name)
			}
		}
	}
	if found == 0 {
		t.Error("no feature gate is set")
	}
}

func TestWhichAPIServersKeepTheConnectionsOfStrangers(t *testing.T) {
	for version, want := range map[string]bool{"1.32.11": true, "1.35.4": true, "1.36.0": false, "2.0.0": false, "": false} {
		if got := keepsAnonymous(version); got != want {
			t.Errorf("%q can be configured to keep anonymous connections: %t, want %t", version, got, want)
		}
	}
}

func TestWhichAPIServersEstimateSizes(t *testing.T) {
	for version, want := range map[string]bool{"1.34.9": false, "1.35.4": true, "1.36.3": true, "1.37.2": true, "1.38.0": false, "": false} {
		if got := estimatesSizes(version); got != want {
			t.Errorf("%q can be configured not to estimate sizes: %t, want %t", version, got, want)
		}
	}
}

// tool returns the path of a binary that `make tools` builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it needs the " + name + " of make tools")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	path := filepath.Join(dir, ".tools", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("there is no %s: run make tools", path)
	}
	return path
}

// knownFlags returns the flags that the help of a binary lists.
func knownFlags(t *testing.T, name string) map[string]bool {
	t.Helper()
	// etcd exits with an error after its help; only the text matters.
	help, _ := exec.Command(tool(t, name), "--help").CombinedOutput()
	known := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1) {
		known[match[1]] = true
	}
	if len(known) < 20 {
		t.Fatalf("help of %s lists %d flags: %s", name, len(known), help)
	}
	return known
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
	return name
}

func TestEveryFlagIsKnownToTheRealBinary(t *testing.T) {
	data := mustRender(t, fullParams())
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		t.Run(name, func(t *testing.T) {
			command := staticPod(t, data, name).Spec.Containers[0].Command
			if command[0] != name {
				t.Errorf("command is %s", command[0])
			}
			checkFlags(t, name, command[1:])
		})
	}
	t.Run("kubelet", func(t *testing.T) { checkFlags(t, "kubelet", kubeletFlags(t, data)) })
}

func checkFlags(t *testing.T, name string, args []string) {
	known := knownFlags(t, name)
	seen := map[string]bool{}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "--") || !known[flagName(arg)] {
			t.Errorf("%s does not know %s", name, arg)
		}
		if seen[flagName(arg)] {
			t.Errorf("%s is given twice", arg)
		}
		seen[flagName(arg)] = true
	}
}

// kubeletFlags returns the arguments of the kubelet in its unit.
func kubeletFlags(t *testing.T, data BootData) []string {
	t.Helper()
	_, after, found := strings.Cut(fileContent(t, data, kubeletUnitFile), "env kubelet \\\n")
	if !found {
		t.Fatal("the unit of the kubelet does not begin it")
	}
	command, _, _ := strings.Cut(after, "\nRestart=")
	return strings.Fields(strings.ReplaceAll(command, "\\\n", ""))
}

// manifestOf returns where the static pod of a component is.
func manifestOf(name string) string {
	if name == "etcd" {
		return etcdManifest
	}
	directory := manifestDirectory
	if name == "kube-controller-manager" || name == "kube-scheduler" {
		directory = waitingDirectory
	}
	return directory + "/" + name + ".yaml"
}

func staticPod(t *testing.T, data BootData, name string) corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(fileContent(t, data, manifestOf(name))), &pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestStaticPodsMountWhatTheirFlagsName(t *testing.T) {
	data := mustRender(t, fullParams())
	all := slices.Concat(data.Public.Storage.Files, data.Private.Storage.Files)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		container := staticPod(t, data, name).Spec.Containers[0]
		for _, arg := range container.Command {
			_, path, _ := strings.Cut(arg, "=")
			if !strings.HasPrefix(path, "/etc/kubernetes/") {
				continue
			}
			mounted := slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
				return path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/")
			})
			written := false
			for _, f := range all {
				written = written || f.Path == path
			}
			if !mounted || !written {
				t.Errorf("%s: %s: mounted %t, written %t", name, arg, mounted, written)
			}
		}
	}
}
