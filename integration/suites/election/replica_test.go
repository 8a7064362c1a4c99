package election_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// replica is an operator in its own process, with its own user on the API server.
type replica struct {
	*process.Process
	user, address string
}

// holds is the duration of the Leases in these tests. It is long enough for a machine that is busy with other tests to
// renew them.
const holds = 8 * time.Second

// start starts a replica that reconciles the KVMConfigs with the label test=<test>, with the Lease <test>.
func start(t *testing.T, test, name string) *replica {
	t.Helper()
	dir := t.TempDir()
	r := &replica{user: test + "-" + name, address: loopback.FreeAddress(t)}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := theLab.WriteKubeconfig(kubeconfig, r.user, "system:masters"); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.Process, err = process.Start(process.Command{
		Name: name, Path: self, Dir: dir, Env: []string{asOperator + "=yes"},
		Args: []string{
			"daemon", "--config.dirs=" + dir, "--service.kubernetes.kubeconfigpath=" + kubeconfig, "--server.listen.address=http://" + r.address,
			"--service.crd.labelselector=test=" + test, "--service.workload.connect=false",
			"--service.leaderelection.namespace=default", "--service.leaderelection.name=" + test, "--service.leaderelection.leaseduration=" + holds.String(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.Failure())
		}
		if err := r.Stop(0); err != nil {
			t.Error(err)
		}
	})
	return r
}

// says waits until a page of the replica's server contains the words.
func (r *replica) says(t *testing.T, path, words string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		body, err := loopback.Get("http://" + r.address + path)
		if err == nil && !strings.Contains(body, words) {
			err = fmt.Errorf("%s of %s does not say %q: %.200s", path, r.user, words, body)
		}
		return err
	})
}

func (r *replica) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.Signal(s); err != nil {
		t.Fatalf("sending %s to %s: %s", s, r.user, err)
	}
}

// writes returns the requests by which a replica has changed something, or has tried to, except those of the election.
func (r *replica) writes(t *testing.T) []managementcluster.Request {
	t.Helper()
	requests, err := theLab.Requests(func(q managementcluster.Request) bool {
		return q.User == r.user && q.Resource != "leases" && !slices.Contains([]string{"get", "list", "watch"}, q.Verb)
	})
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// acts waits until the replica has changed something for a cluster. This excludes the event that reports its
// leadership.
func (r *replica) acts(t *testing.T, within time.Duration) {
	t.Helper()
	lab.Eventually(t, within, func() error {
		if !slices.ContainsFunc(r.writes(t), func(q managementcluster.Request) bool { return q.Resource != "events" }) {
			return fmt.Errorf("%s has written nothing", r.user)
		}
		return nil
	})
}
