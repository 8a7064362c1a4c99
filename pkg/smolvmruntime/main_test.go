package smolvmruntime

import (
	"flag"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

const root = "../.."

// config leads to the API server of the tests, with the CRDs of SmolVMs: see served.
var config *rest.Config

// served returns what leads to the API server of the tests.
func served(t *testing.T) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it needs the API server of make tools")
	}
	return config
}

func TestMain(m *testing.M) {
	switch kind := os.Getenv(childVariable); kind {
	case "":
		flag.Parse()
		if fuzzes() || testing.Short() {
			// Each worker would start an API server, which no fuzz test needs. With -short there is none.
			os.Exit(m.Run())
		}
		os.Exit(run(m))
	case "agent":
		os.Exit(childAgent(os.Args[1]))
	default:
		os.Exit(child(kind))
	}
}

// fuzzes reports whether the test binary was started to fuzz.
func fuzzes() bool {
	return flag.Lookup("test.fuzz").Value.String() != "" || flag.Lookup("test.fuzzworker").Value.String() == "true"
}

func run(m *testing.M) int {
	return crd.Run(m, []string{root + "/helm/kvm-operator/files/smolvm"}, func(c *rest.Config) error {
		config = c
		return nil
	})
}
