package late_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/harness/tools"
	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
)

// The API server under test, and a client that reads from it.
var (
	config *rest.Config
	scheme = runtime.NewScheme()
	direct client.Client
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := tools.ForEnvtest(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log.SetLogger(logr.Discard())
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, corev1.AddToScheme, multusv1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	environment := &envtest.Environment{}
	defer func() { _ = environment.Stop() }()
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the API server does not start:", err)
		return 1
	}
	if direct, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
