package v1_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	vmv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

const (
	root     = "../../../.."
	machines = root + "/helm/kvm-operator/crds/vmoperator.jdrupes.org_vms.yaml"
)

// The API server under test, with the CRD of this package.
var server crd.Server

func TestMain(m *testing.M) {
	os.Exit(crd.Run(m, []string{machines}, func(config *rest.Config) (err error) {
		server, err = crd.Connect(config, vmv1.AddToScheme)
		return err
	}))
}
