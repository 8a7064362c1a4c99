package realcluster_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// deviceResources are the resources of the lab's device plugins. The second one alone is enough for pods of level
// baseline.
var deviceResources = []string{"lab.example.org/tun", "lab.example.org/kvm"}

// nodePod returns the pod that the operator creates for a node with the tiny guest. Its namespace has no operator,
// which would drain it and wait for its Node. Files of the guest image are in the directory.
func nodePod(role string, guest v1alpha1.GuestImage, directory string, settings state.MachineSettings) *corev1.Pod {
	settings.AllowEmulation, settings.ImageDirectories, settings.DiskRequestPercent, settings.MaxImageFile = true, []string{directory}, 1, "1G"
	config := fixture.MakeCluster("ab1cd").Workers(1).With(func(spec *v1alpha1.KVMConfigSpec) {
		spec.GuestImage, spec.KVM.K8sKVM.Acceleration = &guest, "tcg"
		spec.KVM.Workers[0].CPUs, spec.KVM.Workers[0].Memory = 1, "256M"
		spec.KVM.PortMappings = []v1alpha1.PortMapping{{Name: "http", TargetPort: 8080}, {Name: "health", TargetPort: 10248}}
		spec.KVM.K8sKVM.StorageType = v1alpha1.StorageTypePersistentVolume
	}).Obj()
	s := &state.Cluster{Config: state.WithDefaults(config), Settings: state.Settings{
		RunnerImage: "docker.io/kvm-operator/kvm-operator-runner:" + project.Version(), Machine: settings,
	}}
	nodes := state.NewNodes(config.Spec)
	node := nodes[slices.IndexFunc(nodes, func(n state.Node) bool { return n.Role == role })]
	template := nodepod.Template(s, node)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "worker-abc", Labels: template.Labels}, Spec: template.Spec,
	}
	pod.Spec.ServiceAccountName, pod.Spec.ReadinessGates, pod.Spec.TerminationGracePeriodSeconds = "", nil, ptr.To[int64](60)
	machine := &pod.Spec.Containers[0]
	for i := range machine.Env {
		if machine.Env[i].Name == "HOLD_TIMEOUT" {
			machine.Env[i].Value = "0s"
		}
	}
	machine.ReadinessProbe.PeriodSeconds = 2
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "guest", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}}})
	for _, c := range []*corev1.Container{machine, &pod.Spec.InitContainers[0]} {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "guest", MountPath: directory, ReadOnly: true})
	}
	return pod
}

// manifest returns a node pod with its boot data.
func manifest(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	meta := metav1.ObjectMeta{Name: pod.Spec.Volumes[0].ConfigMap.Name}
	list := []any{
		&corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta,
			Data: map[string]string{nodepod.UserData: vm.Pack(t, `{"ignition":{"version":"3.3.0"}}`)},
		},
		&corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta,
			StringData: map[string]string{nodepod.UserData: vm.Pack(t, `{"ignition":{"version":"3.3.0"},"storage":{}}`)},
		},
		pod,
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": list})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNodePodRunsItsMachine: with default settings, and without privileges when device plugins provide the devices.
func TestNodePodRunsItsMachine(t *testing.T) {
	c := theCluster(t)
	for resource, file := range map[string]string{deviceResources[0]: "/dev/net/tun", deviceResources[1]: "/dev/kvm"} {
		if err := c.Node(0).OfferDevices(t.Context(), resource, file); err != nil {
			t.Fatal(err)
		}
	}
	for name, settings := range map[string]state.MachineSettings{
		"privileged":      {},
		"device-resource": {DeviceResources: deviceResources},
		"baseline":        {DeviceResources: deviceResources[1:], PodSecurity: key.PodSecurityBaseline},
	} {
		t.Run(name, func(t *testing.T) { runMachine(t, c, "machine-"+name, settings) })
	}
}

func runMachine(t *testing.T, c *realcluster.Cluster, namespace string, settings state.MachineSettings) {
	t.Helper()
	image, directory := vm.Tiny(t), t.TempDir()
	guest := v1alpha1.GuestImage{
		Name: "tiny", Kernel: v1alpha1.ImageFile{URL: copied(t, image.Kernel, directory)}, Initrd: v1alpha1.ImageFile{URL: copied(t, image.Initrd, directory)},
		KernelArguments: image.Arguments,
	}
	apply(t, c, namespace, manifest(t, nodePod(key.RoleWorker, guest, directory, settings)))
	if _, err := c.Kubectl(t.Context(), "--namespace="+namespace, "wait", "--for=condition=Ready", "pod/worker-abc", "--timeout=120s"); err != nil {
		t.Fatalf("%v\n%s", err, c.Explain(namespace, "worker-abc"))
	}
	address := kubectl(t, c, "--namespace="+namespace, "get", "pod", "worker-abc", "--output=jsonpath={.status.podIP}")
	for port, path := range map[string]string{":8080": "/", ":10248": "/healthz"} {
		answer, err := ask(t.Context(), c.Node(0).Dial, address+port, path)
		if err != nil || !strings.Contains(answer, "200 OK") {
			t.Errorf("the guest answers %q (%v) on port %s", answer, err, port)
		}
	}
	// If the runner forwards the guest's connections, the pod itself answers.
	if _, err := c.Node(0).Exec(t.Context(), "ping", "-c", "1", "-W", "5", address); err != nil {
		t.Error(err)
	}
	status := kubectl(t, c, "--namespace="+namespace, "exec", "worker-abc", "--container=k8s-kvm", "--", nodepod.Binary, "runner", "status")
	if !strings.Contains(status, "Running") {
		t.Errorf("the runner says %q", status)
	}
	checkRights(t, c.Node(0), settings)
	kubectl(t, c, "--namespace="+namespace, "delete", "pod", "worker-abc", "--timeout=60s")
}

// rights shows, as root of the host sees it, the permissions of the machine's runner and its QEMU, and how the runner
// has mounted the images.
const rights = `qemu=$(pgrep --full 'qemu-system.*gues[t]=worker-abc') || exit 1
runner=$(sed -n 's/^PPid:\s*//p' /proc/$qemu/status)
for p in $runner $qemu; do grep -E '^(Name|Uid|CapEff|NoNewPrivs|Seccomp):' /proc/$p/status; done
grep ' ` + nodepod.Images + ` ' /proc/$runner/mounts
echo devices: $(ls /proc/$runner/root/dev)`

// checkRights prints the permissions of the runner and its QEMU, and compares them with the documented ones.
func checkRights(t *testing.T, node *realcluster.Node, settings state.MachineSettings) {
	t.Helper()
	seen, err := node.Exec(t.Context(), "sh", "-c", rights)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the runner and QEMU:\n%s", seen)
	capabilities := regexp.MustCompile(`CapEff:\s*(\S+)`).FindAllStringSubmatch(seen, -1)
	users := regexp.MustCompile(`Uid:\s*(\S+)`).FindAllStringSubmatch(seen, -1)
	if len(capabilities) != 2 || len(users) != 2 {
		t.Fatal("there are not two processes")
	}
	// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_ADMIN and NET_RAW: bits 0, 1, 3 to 8, 12
	// and 13 (capability.h). Level baseline has NET_BIND_SERVICE, bit 10, in place of the last two.
	const few, fewer = "00000000000031fb", "00000000000005fb"
	want := regexp.MustCompile("[1-9a-f].{8}$") // a privileged one has all of them, up to bit 40
	switch {
	case settings.Baseline():
		want = regexp.MustCompile(fewer)
	case len(settings.DeviceResources) > 0:
		want = regexp.MustCompile(few)
	}
	if !want.MatchString(capabilities[0][1]) {
		t.Errorf("the runner has the capabilities %s and not %s", capabilities[0][1], want)
	}
	if strings.Trim(capabilities[1][1], "0") != "" || users[1][1] != fmt.Sprint(keeper.QEMUUser) {
		t.Errorf("QEMU is user %s and has the capabilities %s", users[1][1], capabilities[1][1])
	}
	if !regexp.MustCompile(` ` + nodepod.Images + ` \S+ ro,`).MatchString(seen) {
		t.Error("the machine may write the images of its host")
	}
}

// TestPodSecurityOfNodePods: the API server's messages about node pods that a level of Pod Security rejects.
func TestPodSecurityOfNodePods(t *testing.T) {
	c := theCluster(t)
	kubectl(t, c, "create", "namespace", "baseline")
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "namespace", "baseline", "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, c, "label", "namespace", "baseline", key.LabelPodSecurityEnforce+"=baseline")
	for name, test := range map[string]struct {
		role     string
		settings state.MachineSettings
		want     []string
	}{
		"privileged": {want: []string{
			`non-default capabilities (container "k8s-kvm" must not include "NET_ADMIN" in securityContext.capabilities.add)`,
			`hostPath volumes (volume "images")`,
			`privileged (container "k8s-kvm" must not set securityContext.privileged=true)`,
		}},
		"with device plugins": {settings: state.MachineSettings{DeviceResources: deviceResources}, want: []string{
			`non-default capabilities (container "k8s-kvm" must not include "NET_ADMIN", "NET_RAW" in securityContext.capabilities.add)`,
			`hostPath volumes (volume "images")`,
		}},
		"baseline":        {settings: state.MachineSettings{DeviceResources: deviceResources[1:], PodSecurity: key.PodSecurityBaseline}},
		"baseline master": {role: key.RoleMaster, settings: state.MachineSettings{DeviceResources: deviceResources[1:], PodSecurity: key.PodSecurityBaseline}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := nodePod(cmp.Or(test.role, key.RoleWorker), v1alpha1.GuestImage{Name: "tiny", Kernel: v1alpha1.ImageFile{URL: "https://example.org/k"}, Initrd: v1alpha1.ImageFile{URL: "https://example.org/i"}}, "/x", test.settings)
			pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "guest" })
			for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				mounts := &containers[0].VolumeMounts
				*mounts = slices.DeleteFunc(*mounts, func(m corev1.VolumeMount) bool { return m.Name == "guest" })
			}
			text, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			if nodepod.MeetsBaseline(pod.Spec) != (test.want == nil) {
				t.Error("the operator judges the pod in another way than the API server")
			}
			output, err := c.KubectlInput(t.Context(), string(text), "--namespace=baseline", "create", "--dry-run=server", "-f", "-")
			_, refusal, found := strings.Cut(fmt.Sprint(output, err), `violates PodSecurity "baseline:latest": `)
			if test.want == nil && err == nil {
				t.Log(output)
				return
			}
			if !found {
				t.Fatalf("Pod Security says nothing: %s, %v", output, err)
			}
			refusal, _, _ = strings.Cut(refusal, "\n")
			t.Log(refusal)
			if diff := gocmp.Diff(strings.Join(test.want, ", "), strings.TrimSpace(refusal)); diff != "" {
				t.Errorf("it refuses something else (-want +got):\n%s", diff)
			}
		})
	}
}

// copied copies a file to a directory and returns its URL. .tools contains links to files that no pod sees.
func copied(t *testing.T, path, directory string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(directory, filepath.Base(path))
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}
