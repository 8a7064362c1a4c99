package realcluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

const sleeper = `
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  containers:
  - name: sleeper
    image: ` + busyboxImage + `
    command: [sleep, "3600"]
    securityContext: {privileged: true}
`

// beHarness starts a cluster with a pod, prints where its namespaces are, and waits until it is killed.
func beHarness(archive, dir string) {
	c, err := realcluster.Start(context.Background(), realcluster.Options{Dir: dir, Images: []string{archive}, Output: os.Stderr})
	if err == nil {
		err = runSleeper(context.Background(), c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.PID(), c.Node(0).PID())
	select {}
}

// runSleeper runs a pod that ignores SIGTERM.
func runSleeper(ctx context.Context, c *realcluster.Cluster) error {
	if _, err := c.KubectlInput(ctx, sleeper, "apply", "-f", "-"); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s")
	return err
}

// site holds the traces of a cluster on this machine.
type site struct {
	dir        string
	namespaces []string // as in /proc/PID/ns, network of the control plane first
	cgroups    []string
}

func siteOf(t *testing.T, dir string, pids ...int) site {
	t.Helper()
	s := site{dir: dir}
	for _, pid := range pids {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			t.Fatal(err)
		}
		s.namespaces = append(s.namespaces, link)
	}
	kubelet, err := os.ReadFile(filepath.Join(dir, "node-1/kubelet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`cgroupRoot: /(realcluster-\S+)/`).FindSubmatch(kubelet)[1]
	for _, pattern := range []string{"/sys/fs/cgroup/%s", "/sys/fs/cgroup/*/%s"} {
		found, err := filepath.Glob(fmt.Sprintf(pattern, name))
		if err != nil {
			t.Fatal(err)
		}
		s.cgroups = append(s.cgroups, found...)
	}
	if len(s.cgroups) == 0 {
		t.Fatalf("no cgroup %s is found", name)
	}
	return s
}

// processes lists the processes that are in a network of the site, or see one of its mounts, with their names.
func (s site) processes(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		proc := filepath.Join("/proc", entry.Name())
		network, err := os.Readlink(filepath.Join(proc, "ns/net"))
		if err != nil {
			continue // it has ended
		}
		mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
		if err == nil && (slices.Contains(s.namespaces, network) || strings.Contains(string(mounts), s.dir)) {
			name, _ := os.ReadFile(filepath.Join(proc, "comm"))
			found = append(found, entry.Name()+" "+strings.TrimSpace(string(name)))
		}
	}
	return found
}

func (s site) remainingCgroups() []string {
	return slices.DeleteFunc(slices.Clone(s.cgroups), func(path string) bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestNothingIsLeft kills a cluster beside another one, starts it again in its directory and stops it.
func TestNothingIsLeft(t *testing.T) {
	archive, dir := busyboxArchive(t), commonDirectory(t)
	beside := theCluster(t)
	killed := killedCluster(t, archive, dir)
	checkNodes(t, beside)

	common := commonDirectory(t)
	c, err := realcluster.Start(t.Context(), realcluster.Options{
		Dir: dir, Nodes: make([]realcluster.NodeOptions, 2), Images: []string{archive}, HostPaths: []string{common}, Output: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop() //nolint:errcheck // for tests that fail
	if _, err := realcluster.Start(t.Context(), realcluster.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another management cluster runs in "+dir) {
		t.Errorf("a second start in the same directory returned %v", err)
	}
	if left := killed.remainingCgroups(); len(left) > 0 {
		t.Errorf("the next start left of a killed cluster %v", left)
	}
	t.Run("pods come back", func(t *testing.T) {
		await(t, 30*time.Second, func() error {
			_, err := c.Kubectl(t.Context(), "exec", "sleeper", "--", "true")
			return err
		})
	})
	t.Run("a node writes to a common directory", func(t *testing.T) { writeCommon(t, c.Node(1), common) })
	t.Run("a node breaks down and comes back", func(t *testing.T) { breakDown(t, c) })

	if len(disks(t)) == 0 {
		t.Error("the nodes' disks are not found")
	}
	stopped := siteOf(t, dir, c.PID(), c.Node(0).PID(), c.Node(1).PID())
	if len(stopped.processes(t)) == 0 {
		t.Error("no process of a running cluster is found")
	}
	for range 2 { // stopping a stopped cluster is not an error
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if processes := stopped.processes(t); len(processes) > 0 {
		t.Errorf("Stop left the processes %v", processes)
	}
	if left := disks(t); len(left) > 0 {
		t.Errorf("Stop left %v", left)
	}
	if left := stopped.remainingCgroups(); len(left) > 0 {
		t.Errorf("Stop left %v", left)
	}
	checkNodes(t, beside)
}

// disks are the temporary directories of nodes of this process whose state directory cannot hold them.
func disks(t *testing.T) []string {
	t.Helper()
	mark, err := process.Mark()
	if err != nil {
		t.Fatal(err)
	}
	parent := os.Getenv("TMPDIR")
	if parent == "" {
		parent = "/var/tmp"
	}
	found, err := filepath.Glob(filepath.Join(parent, "realcluster-"+mark+"-*-disks-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// checkNodes checks that a cluster is the one with a single node, and healthy.
func checkNodes(t *testing.T, c *realcluster.Cluster) {
	t.Helper()
	if output := kubectl(t, c, "get", "nodes", "--output=name"); output != "node/node-1" {
		t.Errorf("the cluster beside has the nodes %q", output)
	}
}

func writeCommon(t *testing.T, node *realcluster.Node, common string) {
	if _, err := node.Exec(t.Context(), "sh", "-c", "echo shared >"+common+"/file"); err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(filepath.Join(common, "file")); string(content) != "shared\n" {
		t.Errorf("what a node wrote is %q on this machine (%v)", content, err)
	}
}

// commonDirectory returns a directory in which nodes otherwise see only their own changes.
func commonDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "realcluster-test") //nolint:usetesting // t.TempDir is elsewhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// killedCluster returns a cluster with a pod whose harness was killed, after all its processes have ended.
func killedCluster(t *testing.T, archive, dir string) site {
	t.Helper()
	harness := exec.Command(os.Args[0])
	harness.Env = append(os.Environ(), harnessEnv+"="+archive+":"+dir)
	harness.Stderr = os.Stderr
	output, err := harness.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.Start(); err != nil {
		t.Fatal(err)
	}
	var control, node int
	_, err = fmt.Fscan(bufio.NewReader(output), &control, &node)
	if err != nil {
		_ = harness.Process.Kill()
		t.Fatalf("the harness did not say where its cluster is: %v", err)
	}
	s := siteOf(t, dir, control, node)
	if processes := strings.Join(s.processes(t), " "); !strings.Contains(processes, "kubelet") || !strings.Contains(processes, "sleep") {
		t.Errorf("processes of the cluster are only %s", processes)
	}
	if err := harness.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = harness.Wait() // its error is the kill
	await(t, 10*time.Second, func() error {
		if left := s.processes(t); len(left) > 0 {
			return fmt.Errorf("the killed harness left the processes %v", left)
		}
		return nil
	})
	return s
}
