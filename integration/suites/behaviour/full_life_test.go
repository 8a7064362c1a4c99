package behaviour_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

func TestClusterBecomesReady(t *testing.T) {
	t.Parallel()
	config := makeCluster("full1").Workers(2).Release("20.0.0", "4.0.0").Obj()
	create(t, releaseOf("20.0.0"))
	legacy := followLegacyStatus(t, config)
	createReady(t, config)
	status := theLab.Current(t, config).Status

	t.Run("with every condition True", func(t *testing.T) {
		for _, c := range status.Conditions {
			if c.Status != metav1.ConditionTrue || c.ObservedGeneration != config.Generation {
				t.Errorf("condition %+v, want status True of generation %d", c, config.Generation)
			}
			if c.Type == "Reconciling" || c.Type == "Stalled" {
				t.Errorf("a cluster that is Ready has the condition %+v", c)
			}
		}
		if most := 12; len(status.Conditions) > most {
			t.Errorf("there are %d conditions, at most %d are allowed: %+v", len(status.Conditions), most, status.Conditions)
		}
	})
	t.Run("with the state of every node", func(t *testing.T) {
		for i, want := range []v1alpha1.NodeStatus{{ID: "m0aaa", Role: "master"}, {ID: "w0aaa", Role: "worker"}, {ID: "w1aaa", Role: "worker"}} {
			pod := podOf(t, config, want.ID)
			want.Phase, want.Pod, want.IP, want.Host = "Ready", pod.Name, pod.Status.PodIP, pod.Spec.NodeName
			if want.Role == key.RoleMaster {
				want.EtcdHost, want.EtcdMark = want.Host, status.Nodes[i].EtcdMark
			}
			if marked := status.Nodes[i].EtcdMark != ""; marked != (want.Role == key.RoleMaster) {
				t.Errorf("node %s has mark %q, want one for masters only", want.ID, status.Nodes[i].EtcdMark)
			}
			if status.Nodes[i] != want {
				t.Errorf("node status %+v, want %+v", status.Nodes[i], want)
			}
		}
	})
	t.Run("with the versions in force", func(t *testing.T) {
		if status.Versions == nil || status.Versions.Kubernetes != "1.35.1" {
			t.Errorf("versions %+v, want those of the Release", status.Versions)
		}
	})
	t.Run("with the status of the original", func(t *testing.T) {
		lab.Eventually(t, lab.Timeout, func() error { return legacy.is("Creating", "Created") })
		last := theLab.Current(t, config).Status.Cluster
		if len(last.Nodes) != 3 || len(last.Versions) != 1 || last.Versions[0].Semver != "4.0.0" {
			t.Errorf("legacy status %+v, want three nodes and version 4.0.0", last)
		}
	})
	t.Run("with a kubeconfig that its own authority vouches for", func(t *testing.T) { verifyKubeconfig(t, config) })
	t.Run("with the Ready pods behind the Services", func(t *testing.T) {
		awaitEndpoints(t, config, key.RoleMaster)
		awaitEndpoints(t, config, key.RoleWorker)
		if inSlice, _, err := addresses(config, key.RoleWorker); err != nil || len(inSlice) != 2 {
			t.Errorf("workers at %v (%v), want two", inSlice, err)
		}
	})
}

func TestPodsThatCannotServeLeaveTheEndpoints(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("leave1").Workers(2).Obj())
	awaitEndpoints(t, config, key.RoleWorker)

	pod := podOf(t, config, "w0aaa")
	setReady(t, pod, false)
	awaitEndpoints(t, config, key.RoleWorker)
	if inSlice, _, err := addresses(config, key.RoleWorker); err != nil || slices.Contains(inSlice, pod.Status.PodIP) || len(inSlice) != 1 {
		t.Errorf("workers at %v (%v) while the one at %s is not Ready", inSlice, err, pod.Status.PodIP)
	}
	theLab.AwaitCondition(t, config, lab.Condition{
		Type: "NodesReady", Status: metav1.ConditionFalse, Reason: "NodesNotReady", Message: "worker w0aaa: node pod " + pod.Name + " is not Ready",
	})
	setReady(t, pod, true)
	awaitEndpoints(t, config, key.RoleWorker)
	theLab.AwaitReady(t, config)

	theLab.Delete(t, pod)
	theLab.AwaitGone(t, pod)
	replacement := podOf(t, config, "w0aaa")
	if replacement.UID == pod.UID {
		t.Fatal("the pod was not replaced")
	}
	theLab.AwaitReady(t, config)
	awaitEndpoints(t, config, key.RoleWorker)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: in(config, key.RoleWorker)}
	theLab.Get(t, slice)
	targets := map[types.UID]bool{} // not addresses, because the replacement may have got the old one's
	for _, e := range slice.Endpoints {
		targets[e.TargetRef.UID] = true
	}
	if len(targets) != 2 || !targets[replacement.UID] || targets[pod.UID] {
		t.Errorf("the EndpointSlice leads to %v, want the replacement %s and the other worker", targets, replacement.UID)
	}
}

func verifyKubeconfig(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: in(config, key.KubeconfigName(config.Spec.Cluster.ID))}
	theLab.Get(t, secret)
	rest, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeConfig"])
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://master." + config.Spec.Cluster.ID + ".svc.cluster.local:443"; rest.Host != want {
		t.Errorf("the kubeconfig leads to %s, want %s", rest.Host, want)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(rest.CAData) {
		t.Fatal("the kubeconfig holds no authority")
	}
	block, _ := pem.Decode(rest.CertData)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if !slices.Contains(certificate.Subject.Organization, addons.Administrators) {
		t.Errorf("the client certificate is for %s, who is no administrator", certificate.Subject)
	}
	ca := &corev1.Secret{ObjectMeta: beside(config, "ca")}
	theLab.Get(t, ca)
	if !bytes.Equal(bytes.TrimSpace(rest.CAData), bytes.TrimSpace(ca.Data["crt"])) {
		t.Error("the authority of the kubeconfig is not the cluster's")
	}
}

// legacyHistory is the history of status.cluster.conditions: the newest condition at each time.
type legacyHistory struct {
	mu    sync.Mutex
	types []string
}

func followLegacyStatus(t *testing.T, config *v1alpha1.KVMConfig) *legacyHistory {
	t.Helper()
	h := &legacyHistory{}
	lab.Watch(t, theLab, &v1alpha1.KVMConfigList{}, func(_ watch.EventType, c *v1alpha1.KVMConfig) {
		if c.Name != config.Name || c.Status.Cluster == nil || len(c.Status.Cluster.Conditions) == 0 {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if newest := c.Status.Cluster.Conditions[0].Type; len(h.types) == 0 || h.types[len(h.types)-1] != newest {
			h.types = append(h.types, newest)
		}
	}, client.InNamespace(config.Namespace))
	return h
}

func (h *legacyHistory) is(types ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.types, types) {
		return fmt.Errorf("legacy conditions came as %v, want %v", h.types, types)
	}
	return nil
}
