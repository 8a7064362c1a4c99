package v1alpha1_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

const (
	root = "../../../.."
	crds = root + "/helm/kvm-operator/crds"

	clusters = crds + "/provider.giantswarm.io_kvmconfigs.yaml"
	releases = crds + "/release.giantswarm.io_releases.yaml"
)

// The API server under test, with the CRDs of the chart.
var server crd.Server

func TestMain(m *testing.M) {
	os.Exit(crd.Run(m, []string{crds}, func(config *rest.Config) (err error) {
		server, err = crd.Connect(config, v1alpha1.AddToScheme)
		return err
	}))
}
