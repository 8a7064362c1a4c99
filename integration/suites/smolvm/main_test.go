// Package smolvm_test tests the controller of SmolVMs with a real API server. Nodes and their runtimes are played: a
// runtime has machines in memory alone, behind the real HTTP API and TLS.
package smolvm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/service"
)

var theLab *lab.Lab

// token is what the controller shows to runtimes.
const token = "a-token-of-this-test"

// tokenFile has it.
var tokenFile string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "smolvm-suite-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	tokenFile = filepath.Join(directory, "token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if theLab, err = lab.Start(context.Background(), managementcluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "starting the management cluster:", err)
		return 1
	}
	code := withDefinitions(m)
	if err := theLab.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the management cluster:", err)
		return 1
	}
	return code
}

// withDefinitions runs the tests once SmolVMs are defined, which the chart does only where it runs them.
func withDefinitions(m *testing.M) int {
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", "..", "helm", "kvm-operator", "files", "smolvm")
	if _, err := envtest.InstallCRDs(theLab.RESTConfig(), envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true}); err != nil {
		fmt.Fprintln(os.Stderr, "installing the definitions of SmolVMs:", err)
		return 1
	}
	code := m.Run()
	if shared != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "the shared operator ended with an error:", err)
			return 1
		}
	}
	return code
}

// withSmolVMs are the settings of an operator for SmolVMs alone, which waits less than usual.
func withSmolVMs(c *service.Config) {
	c.NoClusters = true
	c.SmolVMs = &service.SmolVMs{TokenFile: tokenFile, Times: times, PullSecrets: true}
}

var times = nodes.Times{
	First: 50 * time.Millisecond, Last: 500 * time.Millisecond, Silence: 2 * time.Second, Grace: 500 * time.Millisecond, Poll: 200 * time.Millisecond,
	Get: 2 * time.Second, Act: 5 * time.Second, Start: 20 * time.Second,
}

// shared is an operator for all tests that need none of their own. It is started after the others have ended: it would
// act on their objects.
var (
	shared     *lab.Operator
	sharedOnce sync.Once
)

// together makes a test one of those that run together, with the shared operator.
func together(t *testing.T) {
	t.Helper()
	t.Parallel()
	sharedOnce.Do(func() {
		var err error
		if shared, err = theLab.StartOperator(withSmolVMs); err != nil {
			t.Fatal(err)
		}
	})
	if shared == nil {
		t.Fatal("the shared operator could not be started")
	}
}
