package etcdguest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	latest "github.com/coreos/ignition/v2/config/v3_6"
	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// unit is the unit that lets the member of a master start, with its environment.
const unit = "k8s-etcd.service"

var environment = regexp.MustCompile(`(?m)^Environment=DATA=(\S+) "TICKET=([^"]*)" CLUSTER=(\S+) MANIFEST=(\S+) MANIFESTS=(\S+)$`)

// boot processes the boot data of a master as far as etcd is concerned, on the machine's disk. It returns the arguments
// of the member.
func (m *Machines) boot(ctx context.Context, c *machine, pod *corev1.Pod) ([]string, error) {
	config, err := m.bootData(ctx, pod)
	if err != nil {
		return nil, err
	}
	for _, f := range config.Storage.Files {
		if err := write(c.root, f); err != nil {
			return nil, err
		}
	}
	manifest, err := runUnit(ctx, c.root, config)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	static := &corev1.Pod{}
	if err := yaml.Unmarshal(text, static); err != nil {
		return nil, err
	}
	return c.adapted(static.Spec.Containers[0].Command[1:]), nil
}

// bootData returns both parts of a node pod's boot data.
func (m *Machines) bootData(ctx context.Context, pod *corev1.Pod) (types.Config, error) {
	name := client.ObjectKey{Namespace: pod.Namespace, Name: key.BootDataName(key.RoleMaster, pod.Namespace, pod.Labels[key.LabelNode])}
	public, private := &corev1.ConfigMap{}, &corev1.Secret{}
	if err := errors.Join(m.management.Get(ctx, name, public), m.management.Get(ctx, name, private)); err != nil {
		return types.Config{}, err
	}
	config := types.Config{}
	for _, half := range []string{public.Data[nodepod.UserData], string(private.Data[nodepod.UserData])} {
		raw, err := bootdata.Decode(half)
		if err != nil {
			return types.Config{}, err
		}
		parsed, _, err := latest.ParseCompatibleVersion(raw)
		if err != nil {
			return types.Config{}, err
		}
		config = latest.Merge(config, parsed)
	}
	return config, nil
}

// write writes a file to where etcd or its script looks for it.
func write(root string, f types.File) error {
	if f.Contents.Source == nil || !strings.HasPrefix(f.Path, "/etc/kubernetes/") && !strings.HasPrefix(f.Path, "/opt/") {
		return nil
	}
	content, err := dataurl.DecodeString(*f.Contents.Source)
	if err != nil {
		return err
	}
	path := filepath.Join(root, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content.Data, 0o600)
}

// runUnit runs the unit's command and returns the manifest for the kubelet.
func runUnit(ctx context.Context, root string, config types.Config) (manifest string, err error) {
	for _, u := range config.Systemd.Units {
		if u.Name != unit || u.Contents == nil {
			continue
		}
		found := environment.FindStringSubmatch(*u.Contents)
		if found == nil {
			return "", fmt.Errorf("%s has another environment than expected:\n%s", unit, *u.Contents)
		}
		data, manifests := filepath.Join(root, found[1]), filepath.Join(root, found[5])
		if err := errors.Join(os.MkdirAll(filepath.Dir(data), 0o700), os.MkdirAll(manifests, 0o700)); err != nil {
			return "", err
		}
		manifest = filepath.Join(manifests, "etcd.yaml")
		if err := os.Remove(manifest); err != nil && !os.IsNotExist(err) {
			return "", err
		}
		script := exec.CommandContext(ctx, "sh", filepath.Join(root, "opt", "kvm-operator", "etcd"))
		script.Env = append(os.Environ(), "DATA="+data, "TICKET="+found[2], "CLUSTER="+found[3], "MANIFEST="+filepath.Join(root, found[4]), "MANIFESTS="+manifests)
		if output, err := script.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s does not let the member begin: %w\n%s", unit, err, output)
		}
		return manifest, nil
	}
	return "", fmt.Errorf("the boot data has no %s", unit)
}

// adapted returns the arguments for a member that runs as a normal process: its disk is a directory, its address is a
// loopback address, it does not wait for the disk, and it is not emulated.
func (c *machine) adapted(arguments []string) []string {
	var all []string
	for _, a := range arguments {
		switch name, value, _ := strings.Cut(a, "="); {
		case strings.HasPrefix(value, "/"):
			a = name + "=" + filepath.Join(c.root, value)
		case strings.HasPrefix(name, "--listen-"):
			a = strings.NewReplacer("0.0.0.0", c.address, "127.0.0.1", c.address).Replace(a)
		case name == "--heartbeat-interval":
			a = name + "=200"
		case name == "--election-timeout":
			a = name + "=2000"
		}
		all = append(all, a)
	}
	return append(all, "--unsafe-no-fsync")
}
