// Package stage is the whole product on this machine, for end-to-end tests and the demo: a real management cluster with
// real nodes, the operator in it, installed from the chart, and workload clusters whose nodes are real virtual machines
// under software emulation.
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

	"github.com/kvm-operator/kvm-operator/integration/realcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/versions"
)

const (
	// sayAgain is how long nothing is said while something takes its time.
	sayAgain = 5 * time.Second
	// operatorNamespace is where the chart is installed, and release what it is called.
	operatorNamespace = "giantswarm"
	release           = "kvm-operator"
	// guestImages is the directory of a node that node pods see as GuestDirectory's parent.
	guestImages = "/var/lib/flatcar-kvm-images"
	// masterWeight makes up for hosts that share the processors of one machine: an API server that emulated workers leave too
	// little time for runs into its own timeouts while it starts, and begins again.
	masterWeight = 3
	// Program is the path, in their images, of the operator and the runner.
	Program = "/opt/kvm-operator/kvm-operator"
	// GuestDirectory is where node pods find the project's own guest image.
	GuestDirectory = "/usr/code/images/stage"
)

// Root file systems of the guest image.
const (
	// FullImage has all that a node needs.
	FullImage = "root.squashfs"
	// BareImage has what Flatcar has: no kubelet, no kubectl and no CNI plugins. Nodes download these from the stage's mirror.
	BareImage = "bare.squashfs"
	// NextImage is a bare one with the container images of the next minor version of Kubernetes, which real nodes would pull.
	NextImage = "next.squashfs"
)

// Options say how a Stage is set up.
type Options struct {
	// Root is the checkout; Dir, if not empty, the directory of all state, which is not removed.
	Root, Dir string
	// Masters and Workers are how many hosts there are of each role.
	Masters, Workers int
	// Values are further settings of the chart, as helm's --set takes them.
	Values []string
	// Image is FullImage or BareImage. Default: FullImage.
	Image string
	// Next gives the hosts NextImage, too, and the mirror what it lacks; needs `make next-tools`.
	Next bool
	// Snapshots gives the hosts a directory that they share, and the tools of etcd.
	Snapshots bool
	// Audit records the requests to the management cluster.
	Audit bool
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
}

// Start sets a Stage up. What it made so far is removed when it fails.
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
	if err := errors.Join(s.copyGuest(ctx, len(nodes)), s.startMirror(ctx)); err != nil {
		return err
	}
	return s.patiently("installing the operator from helm/kvm-operator", func() error { return s.install(ctx) })
}

// patiently says what is done, and every few seconds that it still is.
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

// Stop ends everything and removes every trace.
func (s *Stage) Stop() error {
	errs := []error{s.mirror.stop()}
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.work))...)
}

// Tool is the path of a tool of `make tools`.
func (s *Stage) Tool(name string) string { return s.tool(name) }

func (s *Stage) tool(name string) string { return filepath.Join(s.options.Root, ".tools", name) }

// buildOperator makes an archive with the operator's image.
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

// SnapshotDirectory is the directory that the hosts share for snapshots of etcd.
func (s *Stage) SnapshotDirectory() string { return filepath.Join(s.work, "snapshots") }

// packEtcdTools makes the directory of snapshots, and an archive with what Jobs use of the image of etcd.
func (s *Stage) packEtcdTools() (archive string, err error) {
	if err := os.MkdirAll(s.SnapshotDirectory(), 0o755); err != nil {
		return "", err
	}
	archive = filepath.Join(s.work, "etcd.tar")
	return archive, realcluster.WriteImage(archive, realcluster.Image{
		Name:  cloudconfig.EtcdImage(cloudconfig.Settings{}, versions.Catalogue.Etcd),
		Files: map[string]string{"/bin/kubeall": s.tool("kubeall")},
		Links: map[string]string{"/bin/etcdctl": "kubeall", "/bin/etcdutl": "kubeall"},
	})
}

// copyGuest puts the guest image where node pods of a host look for images. Links in .tools lead to where nodes do not see.
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

// guestFiles are the tools that hosts have as files of guest images, by the names of the files.
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
		// A master fills its host.
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

// OperatorLog is what the operator has logged.
func (s *Stage) OperatorLog(ctx context.Context) string {
	text, err := s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "logs", "deployment/"+release, "--tail=200")
	if err != nil {
		return err.Error()
	}
	return text
}

// KillOperator ends the operator at once, as a power failure of its host does, and tells whether it ran. Another pod takes its place:
// a container that is killed often would begin later and later.
func (s *Stage) KillOperator(ctx context.Context) (ran bool) {
	for _, host := range s.Cluster.Nodes() {
		if _, err := host.Exec(ctx, "pkill", "-KILL", "-f", "^"+Program+" daemon"); err == nil {
			ran = true
		}
	}
	// That there is no pod is no error.
	_, _ = s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "delete", "pods", "--selector=app="+release, "--force", "--grace-period=0", "--wait=false")
	return ran
}

// ScaleOperator has so many replicas of the operator run.
func (s *Stage) ScaleOperator(ctx context.Context, replicas int) error {
	_, err := s.Cluster.Kubectl(ctx, "--namespace="+operatorNamespace, "scale", "deployment/"+release, fmt.Sprintf("--replicas=%d", replicas))
	return err
}

// Apply applies manifests to the management cluster.
func (s *Stage) Apply(ctx context.Context, manifests string) error {
	_, err := s.Cluster.KubectlInput(ctx, manifests, "apply", "--server-side", "--filename=-")
	return err
}

// Kubeconfig writes the administrator's kubeconfig of a workload cluster to a file of this machine and returns its path.
// It leads through a port of 127.0.0.1 to the Service of the workload cluster's API.
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

// Kubectl runs kubectl against a workload cluster by its kubeconfig.
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

// lines hands each line of progress on.
type lines func(format string, arguments ...any)

// Write takes one line.
func (l lines) Write(line []byte) (int, error) {
	l("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
