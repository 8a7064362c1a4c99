package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// slower is how many times longer than by hand a cluster from its KVMConfig may take.
const slower = 1.25

// BenchmarkFounding compares an operator that creates a cluster with a person who has all its objects ready. That
// person creates Services, boot data and pods at once, applies the add-ons as soon as the API answers, and approves
// every certificate within a second.
func BenchmarkFounding(b *testing.B) {
	l := setUp(b, stage.Options{Masters: 1, Workers: 1})
	var operator, hand time.Duration
	for b.Loop() {
		began := time.Now()
		if err := l.Apply(l.ctx, manifest(id, []string{"m1"}, []string{"w1"})); err != nil {
			l.t.Fatal(err)
		}
		founding := l.foundingData("m1")
		l.awaitReady(2)
		operator = time.Since(began)
		b.Logf("the operator made the cluster in %s", operator.Round(time.Second))

		outside, inside := l.objects(founding)
		l.ends()
		l.scaleOperator(0)
		began = time.Now()
		l.byHand(outside, inside)
		hand = time.Since(began)
		b.Logf("by hand it took %s", hand.Round(time.Second))
		l.management("delete", "namespace", id)
		l.scaleOperator(1)
	}
	ratio := operator.Seconds() / hand.Seconds()
	b.ReportMetric(operator.Seconds(), "s-operator")
	b.ReportMetric(hand.Seconds(), "s-by-hand")
	b.ReportMetric(ratio, "times-by-hand")
	if ratio > slower {
		l.t.Errorf("the operator takes %.2f times as long as a person, want %.2f at most", ratio, slower)
	}
}

func (l *life) scaleOperator(replicas int) {
	l.t.Helper()
	if err := l.ScaleOperator(l.ctx, replicas); err != nil {
		l.t.Fatal(err)
	}
}

// foundingData returns the two parts of the boot data that a master is founded with. Once its etcd member is known to
// have run, the boot data no longer lets another one be founded.
func (l *life) foundingData(master string) []unstructured.Unstructured {
	l.t.Helper()
	l.eventually(patience, func() error {
		if l.management("--namespace="+id, "get", "deployment", key.DeploymentName(key.RoleMaster, master), "--ignore-not-found", "--output=name") == "" {
			return fmt.Errorf("master %s has no Deployment", master)
		}
		return nil
	})
	name := key.BootDataName(key.RoleMaster, id, master)
	return l.list(l.management("--namespace="+id, "get", "configmap/"+name, "secret/"+name, "--output=json"))
}

// objects returns the objects of a cluster for a person to create: on the management cluster, with the boot data of its
// founding, and in the workload cluster.
func (l *life) objects(founding []unstructured.Unstructured) (outside, inside []unstructured.Unstructured) {
	l.t.Helper()
	namespace := unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": id}}}
	text := l.management("--namespace="+id, "get", "serviceaccounts,configmaps,secrets,services,deployments",
		"--selector=giantswarm.io/managed-by=kvm-operator", "--output=json")
	// The hosts keep the data of the first etcd.
	text = strings.ReplaceAll(text, "/home/core/volumes/", "/home/core/volumes-by-hand/")
	outside = append([]unstructured.Unstructured{namespace}, l.list(text)...)
	inside = l.list(l.workload("", "get", "--all-namespaces", "--selector=giantswarm.io/managed-by=kvm-operator", "--output=json",
		"namespaces,serviceaccounts,configmaps,secrets,services,daemonsets,deployments,poddisruptionbudgets,clusterroles,clusterrolebindings"))
	for i, o := range outside {
		for _, f := range founding {
			if f.GetKind() == o.GetKind() && f.GetName() == o.GetName() {
				outside[i] = f
			}
		}
		switch o.GetKind() {
		case "Service":
			selector := o.GetLabels()
			l.set(o, map[string]any{"app": selector["app"]}, "spec", "selector")
			l.set(o, true, "spec", "publishNotReadyAddresses")
			given := []string{"ipFamilies", "ipFamilyPolicy", "clusterIPs"}
			if address, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); address != corev1.ClusterIPNone {
				given = append(given, "clusterIP")
			}
			for _, field := range given {
				unstructured.RemoveNestedField(o.Object, "spec", field)
			}
		case "Deployment":
			for _, field := range []string{"schedulingGates", "readinessGates", "affinity"} {
				unstructured.RemoveNestedField(o.Object, "spec", "template", "spec", field)
			}
			// No operator would ever release these pods and their machines.
			unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "finalizers")
			l.set(o, int64(1), "spec", "template", "spec", "terminationGracePeriodSeconds")
		}
	}
	return outside, inside
}

// list returns a List of objects without what the API server has added to them.
func (l *life) list(text string) []unstructured.Unstructured {
	l.t.Helper()
	var list unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		l.t.Fatal(err)
	}
	for _, o := range list.Items {
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences", "finalizers"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(o.Object, "status")
	}
	return list.Items
}

func (l *life) set(o unstructured.Unstructured, value any, path ...string) {
	l.t.Helper()
	var err error
	if text, ok := value.(map[string]any); ok {
		err = unstructured.SetNestedMap(o.Object, text, path...)
	} else {
		err = unstructured.SetNestedField(o.Object, value, path...)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// byHand creates the cluster from these objects and waits until its Nodes are Ready.
func (l *life) byHand(outside, inside []unstructured.Unstructured) {
	l.t.Helper()
	if _, err := l.Cluster.KubectlInput(l.ctx, l.document(outside), "create", "--filename=-"); err != nil {
		l.t.Fatal(err)
	}
	client := l.client("")
	l.eventually(patience, func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(l.ctx).Error()
	})
	// The API server has created its own services by now.
	if _, err := l.Kubectl(l.ctx, l.kubeconfig, l.document(inside), "apply", "--server-side", "--filename=-"); err != nil {
		l.t.Fatal(err)
	}
	l.eventually(patience, func() error {
		if err := approveAll(l.ctx, client); err != nil {
			return err
		}
		return l.allReady(client, 2)
	})
}

func (l *life) document(objects []unstructured.Unstructured) string {
	l.t.Helper()
	var text strings.Builder
	for _, o := range objects {
		line, err := o.MarshalJSON()
		if err != nil {
			l.t.Fatal(err)
		}
		text.Write(append(line, "---\n"...))
	}
	return text.String()
}

// approveAll approves all undecided requests.
func approveAll(ctx context.Context, client kubernetes.Interface) error {
	requests, err := client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range requests.Items {
		if len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByHand", Message: "a person has approved it",
		}}
		if _, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) allReady(client kubernetes.Interface, want int) error {
	nodes, err := client.CoreV1().Nodes().List(l.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < want {
		return fmt.Errorf("%d of %d Nodes are Ready", ready, want)
	}
	return nil
}
