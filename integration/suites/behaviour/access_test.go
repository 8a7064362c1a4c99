package behaviour_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestTheAPIIsReachedAsTheSpecSays: by a port of the hosts, then by a load balancer, and then from the management
// cluster only. The kubeconfig has that address, under a name in the API server's certificate.
func TestTheAPIIsReachedAsTheSpecSays(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("access1").Workers(1).With(func(spec *v1alpha1.KVMConfigSpec) {
		spec.Access = &v1alpha1.Access{Type: v1alpha1.AccessNodePort, Host: "hosts.example.org", CertSANs: []string{"api.example.org", "192.0.2.7"}}
	}).Obj())
	service := &corev1.Service{ObjectMeta: in(config, key.PublishedService)}
	theLab.Get(t, service)
	if service.Spec.Type != corev1.ServiceTypeNodePort || len(service.Spec.Ports) != 1 {
		t.Fatalf("the Service is %+v", service.Spec)
	}
	awaitLeadsTo(t, config, fmt.Sprintf("https://hosts.example.org:%d", service.Spec.Ports[0].NodePort))
	master := podOf(t, config, "m0aaa").Status.PodIP
	lab.Eventually(t, lab.Timeout, func() error {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: in(config, key.PublishedService)}
		if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(slice), slice); err != nil {
			return err
		}
		if len(slice.Endpoints) != 1 || !slices.Equal(slice.Endpoints[0].Addresses, []string{master}) {
			return fmt.Errorf("the Service leads to %+v, want %s", slice.Endpoints, master)
		}
		return nil
	})
	pair := &corev1.Secret{ObjectMeta: beside(config, "api")}
	theLab.Get(t, pair)
	block, _ := pem.Decode(pair.Data["crt"])
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hosts.example.org", "api.example.org", "192.0.2.7", "master.access1.svc.cluster.local"} {
		if err := certificate.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}

	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Access = &v1alpha1.Access{Type: v1alpha1.AccessLoadBalancer} })
	lab.Eventually(t, lab.Timeout, func() error {
		if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			return fmt.Errorf("the Service is of type %s", service.Spec.Type)
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}
		return theLab.Client.Status().Update(t.Context(), service)
	})
	awaitLeadsTo(t, config, "https://192.0.2.9:443")

	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Access = nil })
	awaitLeadsTo(t, config, "https://master.access1.svc.cluster.local:443")
	lab.Eventually(t, lab.Timeout, func() error {
		err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(service), service)
		if err == nil {
			return errors.New("the Service is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

// awaitLeadsTo waits until the kubeconfig has an address, under the name of the cluster's own Service.
func awaitLeadsTo(t *testing.T, config *v1alpha1.KVMConfig, want string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		secret := &corev1.Secret{ObjectMeta: in(config, key.KubeconfigName(config.Spec.Cluster.ID))}
		if err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		rest, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeConfig"])
		if err != nil {
			return err
		}
		if name := "master." + config.Spec.Cluster.ID + ".svc.cluster.local"; rest.Host != want || rest.ServerName != name {
			return fmt.Errorf("the kubeconfig leads to %s under the name %q, want %s and %s", rest.Host, rest.ServerName, want, name)
		}
		return nil
	})
}
