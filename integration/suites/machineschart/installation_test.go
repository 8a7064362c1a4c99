package machineschart_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/grants"
	"github.com/kvm-operator/kvm-operator/integration/harness/helmchart"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const manager = "kubevirt-operator-controller-manager"

// installation is a cluster with nodes and without any part of the operator.
type installation struct{ *lab.Lab }

func start(t *testing.T) installation {
	t.Helper()
	mc, err := managementcluster.Start(t.Context(), managementcluster.Options{
		ControllerManager: true, Scheduler: true, Kwok: true, PodsEnd: true, Audit: true,
		// The oldest API servers that the chart supports behave like this. Newer ones send lists as the start of
		// watches and would not reveal a missing permission to list.
		Flags: map[managementcluster.Component][]string{managementcluster.APIServer: {"--feature-gates=WatchList=false"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mc.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := mc.AddNodes(t.Context(), 3, nil); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme, storagev1.AddToScheme, apiextensionsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(mc.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return installation{&lab.Lab{Cluster: mc, Client: c}}
}

// helm installs, upgrades or uninstalls and returns helm's output for the user.
func (i installation) helm(t *testing.T, args ...string) string {
	t.Helper()
	return helmchart.Helm(t, append(args, "--namespace="+namespace, "--kubeconfig="+i.Kubeconfig(), "--wait", "--timeout=90s")...)
}

// kubectl runs in the root of the checkout, as the page tells users to.
func (i installation) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(helmchart.Root(), ".tools", "kubectl"), args...)
	command.Dir = helmchart.Root()
	command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + i.Kubeconfig()}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %s\n%s", args, err, output)
	}
	return string(output)
}

// pods returns the operator's pods that run.
func (i installation) pods(t *testing.T) []string {
	t.Helper()
	var pods corev1.PodList
	if err := i.Client.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			names = append(names, pod.Name)
		}
	}
	return names
}

// variable returns a variable of the installed operator.
func (i installation) variable(t *testing.T, name string) string {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: manager}}
	i.Get(t, deployment)
	env := deployment.Spec.Template.Spec.Containers[0].Env
	at := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == name })
	if at < 0 {
		return ""
	}
	return env[at].Value
}

// granted returns what the installed roles allow.
func (i installation) granted(t *testing.T) []grants.Grant {
	t.Helper()
	everywhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: release + "-manager-role"}}
	here := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-leader-election"}}
	i.Get(t, everywhere)
	i.Get(t, here)
	all := grants.Of(append(everywhere.Rules, here.Rules...))
	if len(all) < 30 {
		t.Fatalf("the test sees the grants %v only", all)
	}
	return all
}

// hold checks that the service account has all of the permissions, or none of them.
func (i installation) hold(t *testing.T, all []grants.Grant, held bool) {
	t.Helper()
	for _, g := range all {
		lab.Eventually(t, lab.Timeout, func() error {
			allowed, err := grants.Allowed(context.Background(), i.Client, namespace, manager, g)
			if err == nil && allowed != held {
				err = fmt.Errorf("%s is allowed: %t, want %t", g, allowed, held)
			}
			return err
		})
	}
}

// exampleIsAccepted: the Machine that helm shows to the user is valid.
func (i installation) exampleIsAccepted(t *testing.T, notes string) {
	t.Helper()
	_, example, _ := strings.Cut(notes, "<<EOF\n")
	example, _, _ = strings.Cut(example, "EOF")
	machine := &v1alpha1.Machine{}
	helmchart.Decode(t, []byte(example), machine)
	if err := i.Client.Create(t.Context(), machine, client.DryRunAll); err != nil || machine.Spec.Template != "small" {
		t.Errorf("the example of the notes is answered %v\n%s", err, notes)
	}
}

// TestHelmInstallsUpgradesRollsBackAndUninstalls: the namespace takes only pods that are restricted.
func TestHelmInstallsUpgradesRollsBackAndUninstalls(t *testing.T) {
	i := start(t)
	i.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	i.exampleIsAccepted(t, i.helm(t, "install", release, chart))
	// Helm has waited until the pods were ready.
	if pods := i.pods(t); len(pods) != 1 {
		t.Fatalf("without any value the pods %v run, want one", pods)
	}
	byHelm := i.objects(t)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: manager}}
	kept := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kept"}, Spec: v1alpha1.MachineSpec{Template: "small"}}
	i.Create(t, kept)

	i.helm(t, "upgrade", release, chart, "--set=replicaCount=2,reconcileInterval=1m")
	if pods := i.pods(t); len(pods) != 2 || i.variable(t, "RECONCILE_INTERVAL") != "1m" || !i.Exists(t, budget) {
		t.Errorf("after the upgrade the pods %v run, the interval is %s", pods, i.variable(t, "RECONCILE_INTERVAL"))
	}
	i.helm(t, "rollback", release, "1")
	lab.Eventually(t, lab.Timeout, func() error {
		if pods := i.pods(t); len(pods) != 1 {
			return fmt.Errorf("after the rollback the pods %v run", pods)
		}
		return nil
	})
	if i.variable(t, "RECONCILE_INTERVAL") != "30s" || i.Exists(t, budget) {
		t.Errorf("after the rollback the interval is %s", i.variable(t, "RECONCILE_INTERVAL"))
	}
	all := i.granted(t)
	i.hold(t, all, true)
	i.helm(t, "uninstall", release)
	i.hold(t, all, false)
	if i.Exists(t, &appsv1.Deployment{ObjectMeta: budget.ObjectMeta}) || !i.Exists(t, kept) {
		t.Error("the operator is left, or a Machine is not")
	}

	// The page's other way, on what the uninstalled release has left.
	i.kubectl(t, "apply", "-f", "config/crd/", "-f", "config/rbac/", "-f", "config/manager/")
	if diff := cmp.Diff(byHelm, i.objects(t)); diff != "" {
		t.Errorf("objects (-helm +kubectl):\n%s", diff)
	}
	i.kubectl(t, "rollout", "status", "deployment", manager, "--namespace="+namespace, "--timeout=90s")
	i.hold(t, all, true)
	i.kubectl(t, "delete", "-f", "config/manager/", "-f", "config/rbac/")
	i.hold(t, all, false)
}

// objects returns the installed objects as the API server has them, without what differs from one creation to the next
// and from helm to kubectl: the identity, and the labels that say which of them manages the object.
func (i installation) objects(t *testing.T) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, kind := range []string{
		"v1/ServiceAccount", "v1/Service", "v1/ConfigMap", "apps/v1/Deployment", "rbac.authorization.k8s.io/v1/ClusterRole",
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding", "rbac.authorization.k8s.io/v1/Role", "rbac.authorization.k8s.io/v1/RoleBinding",
		"apiextensions.k8s.io/v1/CustomResourceDefinition", "policy/v1/PodDisruptionBudget", "networking.k8s.io/v1/NetworkPolicy",
	} {
		at := strings.LastIndex(kind, "/")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[:at])
		list.SetKind(kind[at+1:] + "List")
		if err := i.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			mine := object.GetLabels()["app.kubernetes.io/name"] == release || strings.HasSuffix(object.GetName(), ".vitistack.io")
			if mine {
				found[object.GetKind()+" "+object.GetName()] = portable(object)
			}
		}
	}
	if len(found) < 10 {
		t.Fatalf("the test sees %d objects only", len(found))
	}
	return found
}

func portable(object unstructured.Unstructured) map[string]any {
	labels := object.GetLabels()
	delete(labels, "app.kubernetes.io/managed-by")
	delete(labels, "helm.sh/chart")
	content := object.Object
	content["metadata"] = map[string]any{"labels": labels}
	delete(content, "status")
	for _, path := range [][]string{
		{"spec", "template", "metadata", "labels", "app.kubernetes.io/managed-by"}, {"spec", "template", "metadata", "labels", "helm.sh/chart"},
		{"spec", "clusterIP"}, {"spec", "clusterIPs"},
	} {
		unstructured.RemoveNestedField(content, path...)
	}
	return content
}

// TestSamplesAreAccepted: kubectl applies all examples at once, and the API server takes each as it is written.
func TestSamplesAreAccepted(t *testing.T) {
	i := start(t)
	for _, path := range []string{"config/crd/", "examples/"} {
		i.kubectl(t, "apply", "--validate=strict", "-f", path)
	}
	var machines v1alpha1.MachineList
	if err := i.Client.List(t.Context(), &machines); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(helmchart.Root(), "examples", "machine_*.yaml"))
	if err != nil || len(machines.Items) != len(files) || len(files) < 5 {
		t.Errorf("of %d files there are %d Machines, %v", len(files), len(machines.Items), err)
	}
	if _, err := os.Stat(filepath.Join(helmchart.Root(), "charts", "kubevirt-operator", "Chart.yaml")); err != nil {
		t.Error(errors.Join(errors.New("the chart is not at the path of the page"), err))
	}
}
