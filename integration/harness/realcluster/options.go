package realcluster

import (
	"bufio"
	_ "embed" // for the list of packages
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// maxNodes is how many nodes fit into the networks.
const maxNodes = 200

// Options define a cluster. The zero value is a control plane and one node.
type Options struct {
	// Dir is the state directory, on a file system that supports overlayfs. A cluster that is started in the directory
	// of a former one continues its state, as after a power failure. Default: a temporary directory that Stop removes,
	// in $TMPDIR or /var/tmp.
	Dir string
	// Tools is the directory with the executables of the control plane, kubelet, kube-proxy, kubectl and CoreDNS.
	// Default: .tools in the checkout, where `make tools` puts them.
	Tools string
	// Nodes are the cluster's nodes, called node-1, node-2, and so on. Default: one without labels.
	Nodes []NodeOptions
	// Images are OCI or Docker archives with container images for all nodes. There is no registry.
	Images []string
	// HostPaths are directories of this machine that nodes share and may write to. In other directories, nodes see this
	// machine's files, and their changes below /home, /var/lib and /var/log are private.
	HostPaths []string

	// Audit records every request to the API server.
	Audit bool
	// Flags are added to the command lines of the control plane's components.
	Flags map[managementcluster.Component][]string
	// Output receives lines of progress, one in each Write, also when a component ends by itself. Default: they are
	// dropped.
	Output io.Writer
}

// NodeOptions define what is special about a node.
type NodeOptions struct {
	Labels map[string]string
	// Weight is the CPU time of the node relative to a node of weight 1 when CPU time is short. Default: 1. At most
	// 100.
	Weight int
}

//go:embed packages
var packages string

// complete fills in the defaults and checks that everything needed exists.
func (o Options) complete() (Options, error) {
	if os.Geteuid() != 0 {
		return o, errors.New("nodes are run by root only: run this as root")
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []NodeOptions{{}}
	}
	if len(o.Nodes) > maxNodes {
		return o, fmt.Errorf("%d nodes are wanted, at most %d are possible", len(o.Nodes), maxNodes)
	}
	if o.Tools == "" {
		o.Tools = filepath.Join(checkout(), ".tools")
	}
	// The nodes' pod networks are fixed and not allocated because the routes to them exist before the nodes.
	o.Flags = maps.Clone(o.Flags)
	if o.Flags == nil {
		o.Flags = map[managementcluster.Component][]string{}
	}
	o.Flags[managementcluster.ControllerManager] = append([]string{"--allocate-node-cidrs=false"}, o.Flags[managementcluster.ControllerManager]...)
	if err := o.makeAbsolute(); err != nil {
		return o, err
	}
	return o, errors.Join(o.checkTools(), o.checkFiles(), checkPrograms(), checkKernel())
}

func (o *Options) makeAbsolute() error {
	o.Images, o.HostPaths = slices.Clone(o.Images), slices.Clone(o.HostPaths)
	paths := []*string{&o.Tools}
	if o.Dir != "" {
		paths = append(paths, &o.Dir)
	}
	for i := range o.Images {
		paths = append(paths, &o.Images[i])
	}
	for i := range o.HostPaths {
		paths = append(paths, &o.HostPaths[i])
	}
	for _, path := range paths {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("finding %s: %w", *path, err)
		}
		*path = absolute
	}
	return nil
}

func (o Options) checkTools() error {
	for _, name := range []string{"kubelet", "kube-proxy", "kubectl", "coredns"} {
		if _, err := os.Stat(filepath.Join(o.Tools, name)); err != nil {
			return fmt.Errorf("the tool %s is missing: %w (run `make tools` in the repository root)", name, err)
		}
	}
	return nil
}

func (o Options) checkFiles() error {
	for _, path := range append(slices.Clone(o.Images), o.HostPaths...) {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("an image or a directory for the nodes is missing: %w", err)
		}
	}
	return nil
}

// checkPrograms returns an error that names the packages to install.
func checkPrograms() error {
	var missing []string
	for lines := bufio.NewScanner(strings.NewReader(packages)); lines.Scan(); {
		program, name, ok := strings.Cut(lines.Text(), "=")
		if !ok || filepath.IsAbs(program) {
			continue // plugins have their own search path
		}
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if _, err := pluginDir(); err != nil {
		missing = append(missing, "containernetworking-plugins")
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs are missing: run `make tools` in the repository root, or apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

// checkKernel loads the module that a pod needs to reach another pod of its node through a Service. Without it, the
// answer would pass the bridge without the rules that have changed the address of the request.
func checkKernel() error {
	const filtered = "/proc/sys/net/bridge"
	if _, err := os.Stat(filtered); err == nil {
		return nil
	}
	output, err := exec.Command("modprobe", "br_netfilter").CombinedOutput()
	if err != nil {
		return fmt.Errorf("loading the kernel module br_netfilter: %w\n%s", err, output)
	}
	_, err = os.Stat(filtered)
	return err
}

// pluginDir returns the distribution's directory of the CNI plugins.
func pluginDir() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", fs.ErrNotExist
}

// checkout returns the root of the repository.
func checkout() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
