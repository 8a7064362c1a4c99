package realcluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

// harnessEnv makes the test binary a harness that starts a cluster and waits to be killed. The value is an archive of
// images and, after a colon, a state directory.
const harnessEnv = "REALCLUSTER_TEST_HARNESS"

const (
	tools        = "../../../.tools"
	busyboxImage = "busybox.test/busybox:1"
)

func TestMain(m *testing.M) {
	if archive, dir, ok := strings.Cut(os.Getenv(harnessEnv), ":"); ok {
		beHarness(archive, dir)
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if shared.images != "" {
		_ = os.RemoveAll(shared.images)
	}
	os.Exit(code)
}

func stopShared() error {
	if shared.cluster == nil {
		return nil
	}
	if err := shared.cluster.Stop(); err != nil {
		return err
	}
	if _, err := os.Stat(shared.cluster.Dir()); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stop left the temporary directory %s (%w)", shared.cluster.Dir(), err)
	}
	return nil
}

// shared is used by several tests.
var shared struct {
	images  string // directory
	image   sync.Once
	once    sync.Once
	cluster *realcluster.Cluster
	err     error
}

// theCluster returns a cluster with one node, for all tests that do not damage it.
func theCluster(t *testing.T) *realcluster.Cluster {
	t.Helper()
	busybox := busyboxArchive(t)
	shared.once.Do(func() {
		shared.cluster, shared.err = realcluster.Start(context.Background(), realcluster.Options{
			Nodes:  []realcluster.NodeOptions{{Labels: map[string]string{"role": "worker", "node-role.kubernetes.io/worker": ""}}},
			Images: []string{busybox, filepath.Join(tools, "runner-image.tar")},
			Output: os.Stderr,
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// busyboxArchive returns an image of busybox with all its applets.
func busyboxArchive(t *testing.T) string {
	t.Helper()
	shared.image.Do(func() {
		var err error
		shared.images, err = os.MkdirTemp("", "images-of-realcluster") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
	})
	archive := filepath.Join(shared.images, "busybox.tar")
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command(program, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			links["/bin/"+name] = "busybox"
		}
	}
	err = realcluster.WriteImage(archive, realcluster.Image{
		Name: busyboxImage, Entrypoint: []string{"/bin/sh"}, Files: map[string]string{"/bin/busybox": program}, Links: links,
	})
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// apply creates the objects of a manifest in a new namespace that is deleted with the test.
func apply(t *testing.T, c *realcluster.Cluster, namespace, manifest string) {
	t.Helper()
	kubectl(t, c, "create", "namespace", namespace)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.Kubectl(ctx, "delete", "namespace", namespace, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.KubectlInput(t.Context(), manifest, "--namespace="+namespace, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func kubectl(t *testing.T, c *realcluster.Cluster, args ...string) string {
	t.Helper()
	output, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(output)
}

// await waits until condition returns no error.
func await(t *testing.T, patience time.Duration, condition func() error) {
	t.Helper()
	poll.Eventually(t, patience, 100*time.Millisecond, condition)
}

// ask sends a request by a connection from dial and returns the answer.
func ask(ctx context.Context, dial dialer, address, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	connection, err := dial(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return "", err
	}
	var answer bytes.Buffer
	_, err = answer.ReadFrom(connection)
	return answer.String(), err
}
