package v1alpha1_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

const (
	root = "../../../.."
	crds = root + "/helm/kvm-operator/files/smolvm"

	machines = "vm.smolvm.dev_smolvms"
	nodes    = "vm.smolvm.dev_smolvmnodes"
)

// The API server under test, with the CRDs of this package.
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
	environment := &envtest.Environment{CRDDirectoryPaths: []string{crds + "/" + machines + ".yaml", crds + "/" + nodes + ".yaml"}, ErrorIfCRDPathMissing: true}
	defer func() { _ = environment.Stop() }()
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the API server does not start or refuses the CRDs:", err)
		return 1
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	if server, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		panic(err)
	}
	server = client.WithFieldValidation(server, "Strict")
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	if err := server.Create(context.Background(), team); err != nil {
		fmt.Fprintln(os.Stderr, "the namespace of the examples is refused:", err)
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
