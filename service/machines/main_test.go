package machines_test

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

const root = "../.."

// The API server under test, with the definitions of the chart, and a client that reads from it.
var (
	config *rest.Config
	direct client.Client
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(crd.Run(m, []string{root + "/helm/kubevirt-operator/crds"}, connect))
}

func connect(served *rest.Config) error {
	scheme, err := machines.NewScheme()
	if err != nil {
		return err
	}
	config = served
	config.QPS = -1
	if direct, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "example.com/none",
	}
	return direct.Create(context.Background(), class)
}
