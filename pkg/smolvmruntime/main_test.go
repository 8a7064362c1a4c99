package smolvmruntime

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const root = "../.."

// config leads to the API server of the tests, with the CRDs of SmolVMs.
var config *rest.Config

func TestMain(m *testing.M) {
	switch kind := os.Getenv(childVariable); kind {
	case "":
		flag.Parse()
		if fuzzes() {
			// Each worker would start an API server, which no fuzz test needs.
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
	if err := findTools(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{root + "/helm/kvm-operator/files/smolvm"}, ErrorIfCRDPathMissing: true}
	defer func() { _ = environment.Stop() }()
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the API server does not start or refuses the CRDs:", err)
		return 1
	}
	return m.Run()
}

// findTools points envtest to the binaries of this repository, unless others are asked for.
func findTools() error {
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		return nil
	}
	tools, err := filepath.Abs(root + "/.tools")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(tools, "kube-apiserver")); err != nil {
		return fmt.Errorf("these tests need a real API server, run make tools: %w", err)
	}
	return os.Setenv("KUBEBUILDER_ASSETS", tools)
}
