package managementcluster_test

import (
	"errors"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

var everyComponent = []managementcluster.Component{
	managementcluster.Etcd, managementcluster.APIServer, managementcluster.ControllerManager,
	managementcluster.Scheduler, managementcluster.Kwok,
}

func start(t *testing.T, options managementcluster.Options) *managementcluster.Cluster {
	t.Helper()
	options.Output = t.Output()
	cluster, err := managementcluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func core(t *testing.T, cluster *managementcluster.Cluster) corev1client.CoreV1Interface {
	t.Helper()
	return coreFor(t, cluster.RESTConfig())
}

func coreFor(t *testing.T, config *rest.Config) corev1client.CoreV1Interface {
	t.Helper()
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createNamespace(t *testing.T, client corev1client.NamespacesGetter, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// alive reports whether a process exists. A process with id 0 never does.
func alive(pid int) bool { return pid != 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
