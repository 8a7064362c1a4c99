package v1alpha1_test

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

const (
	root = "../../../.."
	crds = root + "/helm/kvm-operator/files/smolvm"

	machines = crds + "/vm.smolvm.dev_smolvms.yaml"
	nodes    = crds + "/vm.smolvm.dev_smolvmnodes.yaml"
)

// The API server under test, with the CRDs of this package.
var server crd.Server

func TestMain(m *testing.M) { os.Exit(crd.Run(m, []string{machines, nodes}, connect)) }

// connect creates the namespace of the examples too.
func connect(config *rest.Config) (err error) {
	if server, err = crd.Connect(config, v1alpha1.AddToScheme, corev1.AddToScheme); err != nil {
		return err
	}
	return server.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
}
