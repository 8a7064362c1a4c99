package v1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	vmv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

const (
	root = "../../../.."
	crds = root + "/helm/kvm-operator/crds"
	crd  = "vmoperator.jdrupes.org_vms"
)

// The API server under test, with the CRDs of the chart.
var (
	config *rest.Config
	server client.Client
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := findTools(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{crds + "/" + crd + ".yaml"}, ErrorIfCRDPathMissing: true}
	defer func() { _ = environment.Stop() }()
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the API server does not start or refuses the CRDs:", err)
		return 1
	}
	scheme := runtime.NewScheme()
	if err := vmv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	if server, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		panic(err)
	}
	server = client.WithFieldValidation(server, "Strict")
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
