package ignitionapply_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/suites/ignitionapply"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

func TestIgnitionAppliesRenderedBootData(t *testing.T) {
	config := fixture.MakeCluster("abc12").Workers(1).With(func(s *v1alpha1.KVMConfigSpec) {
		s.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "ada", PublicKey: "ssh-ed25519 AAAA ada"}}
	}).Obj()
	rendered, err := cluster.Render(t.Context(), lab.Settings(), config, cluster.Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	halves := halvesByNode(t, rendered)
	for node, test := range map[string]struct{ files, absent []string }{
		"master-abc12-m0aaa": {files: []string{
			"etc/kubernetes/config/kubelet.yaml", "etc/kubernetes/etcd/etcd.yaml", "etc/kubernetes/manifests/kube-apiserver.yaml",
			"etc/systemd/system/k8s-kubelet.service", "home/ada/.ssh/authorized_keys.d/ignition",
		}},
		"worker-abc12-w0aaa": {
			files:  []string{"etc/kubernetes/config/kubelet.yaml", "etc/systemd/system/k8s-kubelet.service", "etc/containerd/config.toml"},
			absent: []string{"etc/kubernetes/etcd/etcd.yaml", "etc/kubernetes/manifests/kube-apiserver.yaml"},
		},
	} {
		t.Run(node, func(t *testing.T) {
			root := t.TempDir()
			if err := ignitionapply.Apply(t.Context(), ignition(t), merged(t, halves[node]), root); err != nil {
				t.Fatal(err)
			}
			for _, path := range test.files {
				if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Size() == 0 {
					t.Errorf("Ignition did not write %s: %v", path, err)
				}
			}
			for _, path := range test.absent {
				if _, err := os.Stat(filepath.Join(root, path)); !os.IsNotExist(err) {
					t.Errorf("%s is on a worker", path)
				}
			}
			compare(t, root, halves[node])
			// The kubelet's unit is a file because of its mode, and still has to be enabled.
			presets, err := os.ReadFile(filepath.Join(root, "etc/systemd/system-preset/20-ignition.preset"))
			if err != nil || !strings.Contains(string(presets), "enable k8s-kubelet.service\n") {
				t.Errorf("the kubelet is not enabled: %v, %s", err, presets)
			}
		})
	}
}

// halvesByNode returns the decoded boot data of each node, both parts.
func halvesByNode(t *testing.T, rendered []cluster.Rendered) map[string][][]byte {
	t.Helper()
	halves := map[string][][]byte{}
	for _, r := range rendered {
		if r.Handler != "configmap" {
			continue
		}
		for _, object := range r.Objects {
			text := ""
			switch o := object.(type) {
			case *corev1.ConfigMap:
				text = o.Data[nodepod.UserData]
			case *corev1.Secret:
				text = string(o.Data[nodepod.UserData])
			}
			half, err := bootdata.Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			halves[object.GetName()] = append(halves[object.GetName()], half)
		}
	}
	return halves
}

// merged returns the config that a runner merges from the two parts.
func merged(t *testing.T, halves [][]byte) []byte {
	t.Helper()
	var sources []map[string]string
	for _, half := range halves {
		sources = append(sources, map[string]string{"source": "data:;base64," + base64.StdEncoding.EncodeToString(half)})
	}
	config, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.3.0", "config": map[string]any{"merge": sources}}})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// compare checks that every file of the parts is in the root, with its mode.
func compare(t *testing.T, root string, halves [][]byte) {
	t.Helper()
	files := 0
	for _, half := range halves {
		var config struct {
			Storage struct {
				Files []struct {
					Path string
					Mode *int
				}
			}
		}
		if err := json.Unmarshal(half, &config); err != nil {
			t.Fatal(err)
		}
		for _, f := range config.Storage.Files {
			files++
			info, err := os.Stat(filepath.Join(root, strings.TrimPrefix(f.Path, "/")))
			if err != nil {
				t.Errorf("%s was not written: %s", f.Path, err)
			} else if f.Mode != nil && info.Mode().Perm() != os.FileMode(*f.Mode).Perm() {
				t.Errorf("%s has mode %o, the config says %o", f.Path, info.Mode().Perm(), *f.Mode)
			}
		}
	}
	t.Logf("%d files written", files)
}
