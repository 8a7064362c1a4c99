package late_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
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
	log.SetLogger(logr.Discard())
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, corev1.AddToScheme, multusv1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return crd.Run(m, nil, func(served *rest.Config) (err error) {
		config = served
		direct, err = client.New(config, client.Options{Scheme: scheme})
		return err
	})
}
