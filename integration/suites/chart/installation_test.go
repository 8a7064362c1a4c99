package chart_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/integration/harness/grants"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

// operators is the namespace that the chart is installed into. It is not the original operator's, and it only accepts
// restricted pods.
const operators = "operators"

// user is the operator's user name for the API server.
const user = "system:serviceaccount:" + operators + ":" + release

// installation is a management cluster that helm installs the chart into.
type installation struct{ *lab.Lab }

// start starts a management cluster with hosts and without any part of the operator.
func start(t *testing.T) installation {
	t.Helper()
	ctx := context.Background()
	mc, err := managementcluster.Start(ctx, managementcluster.Options{
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
	for _, role := range []string{key.RoleMaster, key.RoleWorker} {
		if _, err := mc.AddNodes(ctx, 3, map[string]string{key.LabelManagementNodesRole: role}); err != nil {
			t.Fatal(err)
		}
	}
	i := installation{&lab.Lab{Cluster: mc, Client: administrator(t, mc)}}
	i.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: operators, Labels: map[string]string{key.LabelPodSecurityEnforce: "restricted"},
	}})
	return i
}

// administrator returns a client with all permissions.
func administrator(t *testing.T, mc *managementcluster.Cluster) client.Client {
	t.Helper()
	scheme, err := service.NewScheme()
	if err == nil {
		err = errors.Join(authenticationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme), admissionv1.AddToScheme(scheme))
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(mc.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// helm installs, upgrades or uninstalls and returns helm's output for the user.
func (i installation) helm(t *testing.T, args ...string) string {
	t.Helper()
	return helm(t, append(args, "--namespace="+operators, "--kubeconfig="+i.Kubeconfig(), "--wait", "--timeout=90s")...)
}

// installed returns the operator's objects from the API server.
func (i installation) installed(t *testing.T) rendered {
	t.Helper()
	config := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: release}}
	secret := corev1.Secret{ObjectMeta: config.ObjectMeta}
	r := rendered{}
	r.deployment.ObjectMeta = config.ObjectMeta
	i.Get(t, &config)
	i.Get(t, &secret)
	i.Get(t, &r.deployment)
	text := map[string]string{}
	for name, content := range secret.Data {
		text[name] = string(content)
	}
	r.files = map[string]map[string]string{"ConfigMap " + config.Name: config.Data, "Secret " + secret.Name: text}
	return r
}

// pods returns the operator's pods.
func (i installation) pods(t *testing.T) []string {
	t.Helper()
	var pods corev1.PodList
	err := i.Client.List(context.Background(), &pods, client.InNamespace(operators), client.MatchingLabels{"app.kubernetes.io/name": release})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// operate runs the operator as its container would: with the container's arguments and files and with a token of its
// service account. It returns the address of the operator's server and a function that ends the operator.
func (i installation) operate(t *testing.T) (address string, stop func()) {
	t.Helper()
	address = loopback.FreeAddress(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "operator.log"))
	if err != nil {
		t.Fatal(err)
	}
	command := cmd.New()
	command.SetOut(log)
	command.SetArgs(append(i.installed(t).commandLine(t),
		"--service.kubernetes.incluster=false", "--service.kubernetes.kubeconfigpath="+i.identity(t),
		// These machines run nothing; integration/suites/e2e has an operator with machines.
		"--service.workload.connect=false", "--server.listen.address=http://"+address))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended with an error: %s", err)
		}
	})
	t.Cleanup(func() {
		stop()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("log of the operator (%v):\n%s", err, text)
		}
	})
	return address, stop
}

// identity writes a kubeconfig with a token of the operator's service account.
func (i installation) identity(t *testing.T) string {
	t.Helper()
	return grants.Identity(t, i.Cluster, i.Client, operators, i.installed(t).deployment.Spec.Template.Spec.ServiceAccountName)
}

// kubeconfig writes one with a token.
func (i installation) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	return grants.Kubeconfig(t, i.Cluster, token)
}
