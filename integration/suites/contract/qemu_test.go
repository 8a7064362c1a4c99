package contract_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/cmd/smolvm"
	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
)

// program makes the test binary the program smolvm, so that what is tested is compiled once.
const program = "CONTRACT_TEST_PROGRAM"

// long runs all cases of the part boot.
var long = flag.Bool("long", false, "run all cases of the part boot, which take minutes under emulation")

func TestMain(m *testing.M) {
	if os.Getenv(program) != "" {
		os.Exit(smolvm.Execute(smolvm.New()))
	}
	flag.Parse()
	os.Exit(m.Run())
}

// tools is where `make tools` puts the guests' kernel and initrd.
const tools = "../../../.tools/guest"

// startQEMU starts this project's server, whose machines are emulated: they need no KVM, and take ten times as long.
func startQEMU(t *testing.T) Target {
	t.Helper()
	directory := t.TempDir()
	address := "unix://" + filepath.Join(directory, "smolvm.sock")
	registry := serveImages(t)
	start := func() (stop func(os.Signal)) {
		server := exec.Command(os.Args[0], "serve", "start", "--listen="+address, "--state="+filepath.Join(directory, "state"), "--run="+filepath.Join(directory, "run"),
			"--kernel="+tools+"/vmlinuz", "--initrd="+tools+"/micro.cpio.gz", "--acceleration=tcg", "--allow-emulation",
			"--egress-allow=192.0.2.0/24,198.51.100.0/24", // of which the floor lets no guest reach any
			"--registry-mirror=docker.io="+registry.Host, "--registry-insecure="+registry.Host)
		server.Env = append(os.Environ(), program+"=smolvm")
		return serve(t, server, directory, address)
	}
	stop := start()
	target := Target{Kind: kindQEMU, Address: address, Boots: true, Shell: "alpine", Web: "web:1", Artifacts: filepath.Join(directory, "state", "artifacts"), Host: "127.0.0.1", Patience: 3 * time.Minute}
	t.Cleanup(func() {
		target.deleteAll(t)
		stop(syscall.SIGTERM)
	})
	target.Restart = func(t *testing.T) {
		t.Helper()
		stop(syscall.SIGKILL)
		stop = start()
	}
	return target
}

// deleteAll ends what a failed test has left: machines outlive their server.
func (target Target) deleteAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := target.client(t)
	machines, err := c.List(ctx)
	if err != nil {
		t.Errorf("listing what is left: %v", err)
	}
	for _, m := range machines {
		if err := c.Delete(ctx, m.Name); err != nil {
			t.Errorf("deleting what is left: %v", err)
		}
	}
}

func serveImages(t *testing.T) *ocifixture.Registry {
	t.Helper()
	alpine, err := ocifixture.Alpine()
	if err != nil {
		t.Fatal(err)
	}
	web, err := ocifixture.Web()
	if err != nil {
		t.Fatal(err)
	}
	registry, err := ocifixture.Serve(map[string]v1.Image{"library/alpine:latest": alpine, "library/web:1": web}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	return registry
}
