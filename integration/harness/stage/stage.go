// Package stage runs the whole product on this machine, for end-to-end tests and the demo: a real management cluster
// with real nodes, the operator installed from the chart, and workload clusters whose nodes are real, emulated virtual
// machines.
package stage

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

const (
	// sayAgain is how long a step may take before its progress is reported again.
	sayAgain = 5 * time.Second
	// operatorNamespace is the namespace that the chart is installed in, and release is its name.
	operatorNamespace = "giantswarm"
	release           = "kvm-operator"
	// guestImages is the directory of a node that node pods see as GuestDirectory's parent.
	guestImages = "/var/lib/flatcar-kvm-images"
	// masterWeight compensates for hosts that share the CPUs of one machine. If emulated workers leave an API server
	// too little CPU time, it reaches its own timeouts while it starts, and restarts.
	masterWeight = 8
	// Program is the path, in their images, of the operator and the runner.
	Program = "/opt/kvm-operator/kvm-operator"
	// GuestDirectory is where node pods find the project's own guest image.
	GuestDirectory = "/usr/code/images/stage"
)

// The root file systems of the guest image.
const (
	// FullImage has everything that a node needs.
	FullImage = "root.squashfs"
	// BareImage has what Flatcar has: no kubelet, no kubectl and no CNI plugins. Nodes download these from the stage's
	// mirror.
	BareImage = "bare.squashfs"
	// NextImage is a bare image with the container images of the next minor version of Kubernetes, which real nodes
	// would pull.
	NextImage = "next.squashfs"
)

// Options define a Stage.
type Options struct {
	// Root is the checkout. Dir, if not empty, is the directory of all state, which is not removed.
	Root, Dir string
	// Masters and Workers are the numbers of hosts for each role.
	Masters, Workers int
	// Values are further settings of the chart, as helm's --set takes them.
	Values []string
	// Image is FullImage or BareImage. Default: FullImage.
	Image string
	// Next also gives the hosts NextImage, and the mirror what NextImage lacks. It needs `make next-tools`.
	Next bool
	// Snapshots gives the hosts a shared directory, and the tools of etcd.
	Snapshots bool
	// Audit records the requests to the management cluster.
	Audit bool
	// VirtualMachines gives the hosts the image of VirtualMachines' runners, and no image of nodes.
	VirtualMachines bool
	// SmolVMs lets the hosts of workers run SmolVMs, by emulation where there is no KVM, from SmolVMImage.
	SmolVMs bool
	// Say receives lines of progress.
	Say func(format string, arguments ...any)
}

// Stage is a management cluster with the operator in it.
type Stage struct {
	// Cluster is the management cluster.
	Cluster *realcluster.Cluster
	options Options
	work    string
	mirror  *mirror
	// registry has the images of SmolVMs; nil without.
	registry *ocifixture.Registry
}

// Start starts a Stage. If it fails, it removes what it has created so far.
func Start(ctx context.Context, options Options) (*Stage, error) {
	if options.Dir != "" {
		if err := os.MkdirAll(options.Dir, 0o755); err != nil {
			return nil, err
		}
	}
	work, err := os.MkdirTemp(options.Dir, "stage-")
	if err != nil {
		return nil, err
	}
	s := &Stage{options: options, work: work}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stage) start(ctx context.Context) error {
	var image string
	if err := s.patiently("building the operator and its image", func() (err error) {
		image, err = s.buildOperator(ctx)
		return err
	}); err != nil {
		return err
	}
	images, shared := []string{image, s.tool("runner-image.tar")}, []string(nil)
	if s.options.Snapshots {
		archive, err := s.packEtcdTools()
		if err != nil {
			return err
		}
		images, shared = append(images, archive), []string{s.SnapshotDirectory()}
	}
	if s.options.VirtualMachines {
		images = append(images, s.tool("vm-runner-image.tar"))
	}
	if s.options.SmolVMs {
		images = append(images, s.tool("smolvm-runtime-image.tar"))
	}
	var nodes []realcluster.NodeOptions
	for _, hosts := range []struct {
		role          string
		count, weight int
	}{{key.RoleMaster, s.options.Masters, masterWeight}, {key.RoleWorker, s.options.Workers, 1}} {
		for range hosts.count {
			nodes = append(nodes, realcluster.NodeOptions{
				Labels: map[string]string{key.LabelManagementNodesRole: hosts.role}, Weight: hosts.weight,
			})
		}
	}
	var err error
	s.Cluster, err = realcluster.Start(ctx, realcluster.Options{
		Dir: s.options.Dir, Nodes: nodes, Images: images, HostPaths: shared, Audit: s.options.Audit, Output: lines(s.options.Say),
	})
	if err != nil {
		return err
	}
	if !s.options.VirtualMachines {
		err = errors.Join(s.copyGuest(ctx, len(nodes)), s.startMirror(ctx))
	}
	if err != nil {
		return err
	}
	if s.options.SmolVMs {
		if err := s.serveImages(ctx); err != nil {
			return err
		}
	}
	return s.patiently("installing the operator from helm/kvm-operator", func() error { return s.install(ctx) })
}

// patiently prints the current step, and every few seconds that it is still in progress.
func (s *Stage) patiently(what string, do func() error) error {
	s.options.Say("%s", what)
	began, over := time.Now(), make(chan struct{})
	var speaker sync.WaitGroup
	speaker.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(sayAgain):
				s.options.Say("%s: %s so far", what, time.Since(began).Round(time.Second))
			}
		}
	})
	err := do()
	close(over)
	speaker.Wait()
	return err
}

// Stop stops everything and removes every trace.
func (s *Stage) Stop() error {
	errs := []error{s.mirror.stop()}
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Stop())
	}
	if s.registry != nil {
		errs = append(errs, s.registry.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.work))...)
}

// Tool returns the path of a tool of `make tools`.
func (s *Stage) Tool(name string) string { return s.tool(name) }

func (s *Stage) tool(name string) string { return filepath.Join(s.options.Root, ".tools", name) }

// buildOperator builds an archive with the operator's image.
func (s *Stage) buildOperator(ctx context.Context) (archive string, err error) {
	binary := filepath.Join(s.work, "kvm-operator")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, ".")
	build.Dir, build.Env = s.options.Root, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the operator: %w\n%s", err, output)
	}
	archive = filepath.Join(s.work, "operator.tar")
	return archive, realcluster.WriteImage(archive, realcluster.Image{
		Name:       "docker.io/kvm-operator/kvm-operator:" + project.Version(),
		Entrypoint: []string{Program},
		Files:      map[string]string{Program: binary},
	})
}

// SnapshotDirectory returns the directory that the hosts share for snapshots of etcd.
func (s *Stage) SnapshotDirectory() string { return filepath.Join(s.work, "snapshots") }

// packEtcdTools creates the directory of snapshots, and an archive with the tools that Jobs use from the image of etcd.
func (s *Stage) packEtcdTools() (archive string, err error) {
	if err := os.MkdirAll(s.SnapshotDirectory(), 0o755); err != nil {
		return "", err
	}
	archive = filepath.Join(s.work, "etcd.tar")
	return archive, realcluster.WriteImage(archive, realcluster.Image{
		Name:  cloudconfig.EtcdImage(cloudconfig.Settings{}, versions.Catalog.Etcd),
		Files: map[string]string{"/bin/kubeall": s.tool("kubeall")},
		Links: map[string]string{"/bin/etcdctl": "kubeall", "/bin/etcdutl": "kubeall"},
	})
}

// copyGuest copies the guest image to where node pods of a host look for images. .tools contains links to files that
// nodes do not see.
func (s *Stage) copyGuest(ctx context.Context, nodes int) error {
	directory := filepath.Join(guestImages, filepath.Base(GuestDirectory))
	for i := range nodes {
		node := s.Cluster.Node(i)
		s.options.Say("copying the guest image to %s", node.Name())
		if _, err := node.Exec(ctx, "mkdir", "-p", directory); err != nil {
			return err
		}
		for name, tool := range s.guestFiles() {
			source, err := filepath.EvalSymlinks(s.tool(tool))
			if err != nil {
				return fmt.Errorf("the guest image is missing: %w (run `make tools`, or `make next-tools`)", err)
			}
			if _, err := node.Exec(ctx, "cp", source, filepath.Join(directory, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// guestFiles returns the tools that hosts have as files of guest images, by file name.
func (s *Stage) guestFiles() map[string]string {
	files := map[string]string{}
	for _, name := range []string{"vmlinuz", "initrd.img", cmp.Or(s.options.Image, FullImage)} {
		files[name] = filepath.Join("guest", name)
	}
	if s.options.Next {
		files[NextImage] = filepath.Join(next, "guest", BareImage)
	}
	return files
}

func (s *Stage) install(ctx context.Context) error {
	arguments := []string{
		"upgrade", "--install", release, filepath.Join(s.options.Root, "helm", "kvm-operator"),
		"--namespace=" + operatorNamespace, "--create-namespace", "--kubeconfig=" + s.Cluster.Kubeconfig(), "--wait", "--timeout=3m",
		"--set=image.tag=" + project.Version(),
		// A master needs its whole host.
		"--set=machine.allowEmulation=true", "--set=machine.imageDirectories={" + GuestDirectory + "}",
		"--set=sharedHosts=true", "--set=nodeSelector." + key.LabelManagementNodesRole + "=" + key.RoleWorker,
	}
	for _, value := range append(s.mirror.values(s.Cluster.Address()), s.options.Values...) {
		arguments = append(arguments, "--set="+value)
	}
	var complaint strings.Builder
	command := exec.CommandContext(ctx, s.tool("helm"), arguments...)
	command.Stdout, command.Stderr = &complaint, &complaint
	if err := s.Cluster.Run(command); err != nil {
		pods, _ := s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "describe", "pods")
		return fmt.Errorf("installing the operator: %w\n%s\n%s", err, complaint.String(), pods)
	}
	return nil
}

// ReplaceOperator builds the operator and installs it again, with its chart and its definitions, in place of the one
// that runs.
func (s *Stage) ReplaceOperator(ctx context.Context) error {
	image, err := s.buildOperator(ctx)
	if err != nil {
		return err
	}
	for _, host := range s.Cluster.Nodes() {
		if err := host.Import(ctx, image); err != nil {
			return err
		}
	}
	definitions := filepath.Join(s.options.Root, "helm", "kvm-operator", "crds")
	if _, err := s.Cluster.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--filename="+definitions); err != nil {
		return err
	}
	// The image has the same name as before, so the chart alone would keep the pod.
	s.KillOperator(ctx)
	return s.install(ctx)
}

// OperatorLog returns the operator's log.
func (s *Stage) OperatorLog(ctx context.Context) string {
	text, err := s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "logs", "deployment/"+release, "--tail=200")
	if err != nil {
		return err.Error()
	}
	return text
}

// KillOperator kills the operator at once, as a power failure of its host does, and reports whether it ran. A new pod
// replaces it because a container that is killed often would restart later and later.
func (s *Stage) KillOperator(ctx context.Context) (ran bool) {
	for _, host := range s.Cluster.Nodes() {
		if _, err := host.Exec(ctx, "pkill", "-KILL", "-f", "^"+Program+" daemon"); err == nil {
			ran = true
		}
	}
	// It is not an error if there is no pod.
	_, _ = s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "delete", "pods", "--selector=app="+release, "--force", "--grace-period=0", "--wait=false")
	return ran
}

// ScaleOperator sets the number of the operator's replicas.
func (s *Stage) ScaleOperator(ctx context.Context, replicas int) error {
	_, err := s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "scale", "deployment/"+release, fmt.Sprintf("--replicas=%d", replicas))
	return err
}

// Apply applies manifests to the management cluster.
func (s *Stage) Apply(ctx context.Context, manifests string) error {
	_, err := s.Cluster.KubectlInput(ctx, manifests, "apply", "--server-side", "--filename=-")
	return err
}

// Kubeconfig writes the administrator's kubeconfig of a workload cluster to a file of this machine and returns its
// path. Its server is a port of 127.0.0.1 that forwards to the Service of the workload cluster's API.
func (s *Stage) Kubeconfig(ctx context.Context, id string) (string, error) {
	encoded, err := s.Cluster.Kubectl(ctx, "--namespace="+key.Namespace(id), "get", "secret", key.KubeconfigName(id), "--output=jsonpath={.data.kubeConfig}")
	if err != nil {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", err
	}
	service := "https://" + key.ServiceHost(key.RoleMaster, id, realcluster.Domain) + ":443"
	if !strings.Contains(string(text), service) {
		return "", fmt.Errorf("the kubeconfig of cluster %s does not lead to %s", id, service)
	}
	local, err := s.Cluster.Node(0).Forward(ctx, strings.TrimPrefix(service, "https://"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.work, id+".kubeconfig")
	return path, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), service, "https://"+local)), 0o600)
}

// Kubectl runs kubectl against a workload cluster with its kubeconfig.
func (s *Stage) Kubectl(ctx context.Context, kubeconfig, input string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, s.tool("kubectl"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var output, complaint strings.Builder
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &output, &complaint
	command.WaitDelay = 5 * time.Second
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(arguments, " "), err, complaint.String())
	}
	return output.String(), nil
}

// lines passes each line of progress on.
type lines func(format string, arguments ...any)

// Write takes one line.
func (l lines) Write(line []byte) (int, error) {
	l("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
