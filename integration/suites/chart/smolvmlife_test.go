package chart_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

const (
	// smolVMs is the namespace of the release that runs SmolVMs alone.
	smolVMs        = "smolvm-system"
	smolVMRelease  = "smolvm-operator"
	controllerUser = "system:serviceaccount:" + smolVMs + ":" + smolVMController
	runtimeUser    = "system:serviceaccount:" + smolVMs + ":" + smolVMRuntime
	runtimeSecret  = "smolvm-runtime-auth"
)

// elsewhereUsed are the grants of which the audit log of this test has no request: an event that repeats, a status of an
// object that cannot be decoded, and the creation of an object by a patch, which needs both verbs and is logged as a patch.
var elsewhereUsed = map[grant]bool{
	{Verb: "patch", Group: "events.k8s.io", Resource: "events"}: true, {Verb: "patch", Group: "vm.smolvm.dev", Resource: "smolvms/status"}: true, {Verb: "create", Group: "vm.smolvm.dev", Resource: "smolvmnodes"}: true,
}

// TestSmolVMsNeedWhatTheChartGivesThemAndNoMore: helm installs the chart without the operator. The controller and the
// runtime of one node run with only the installed arguments, files and permissions, and during the life of a SmolVM they
// use every permission and lack none. The machine is played; all between it and the API server is real.
func TestSmolVMsNeedWhatTheChartGivesThemAndNoMore(t *testing.T) {
	i := start(t)
	i.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: smolVMs}})
	i.installSmolVMs(t)
	token := i.token(t)
	i.installSmolVMs(t)
	if again := i.token(t); again != token || len(token) < 32 {
		t.Errorf("the token is %q, and after an upgrade %q", token, again)
	}
	grants := map[string][]grant{controllerUser: i.grantsFor(t, smolVMController), runtimeUser: i.grantsFor(t, smolVMRuntime)}

	n := i.node(t)
	i.policyIsSound(t)
	i.onlyItsOwnNode(t, n)
	machines := i.playMachines(t)
	endRuntime := i.runRuntime(t, n, machines)
	endController := i.runController(t)
	i.lifeOfASmolVM(t, n.node, machines)
	endController()

	// F15 of uninstalling: the runtime's pods end after the rest is gone.
	i.helmSmolVMs(t, "uninstall", smolVMRelease)
	i.goneIsTheRest(t)
	endRuntime()
	if drains := machines.drains(); drains != 1 {
		t.Errorf("the machines were powered down %d times, want once: the DaemonSet is gone", drains)
	}
	for account, granted := range grants {
		i.everyGrantIsUsed(t, account, granted, elsewhereUsed)
	}
	for name, all := range map[string]bool{smolVMController: false, smolVMRuntime: true} {
		i.holdIn(t, smolVMs, name, grants["system:serviceaccount:"+smolVMs+":"+name], all)
	}
	i.installSmolVMs(t) // takes what stayed
}

func (i installation) helmSmolVMs(t *testing.T, args ...string) {
	t.Helper()
	helm(t, append(args, "--namespace="+smolVMs, "--kubeconfig="+i.Kubeconfig())...)
}

// installSmolVMs installs or upgrades as `make deploy` does.
func (i installation) installSmolVMs(t *testing.T) {
	t.Helper()
	i.helmSmolVMs(t, "upgrade", "--install", smolVMRelease, chart, "--skip-crds", "--take-ownership", "--set-json=controllers=[]", "--set=smolvm.enabled=true,smolvm.allowEmulation=true,smolvm.pullSecrets=true", "--set-json=smolvm.pullSecretNames=[\"registry\"]")
}

func (i installation) token(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: runtimeSecret}}
	i.Get(t, secret)
	return string(secret.Data["token"])
}

// grantsFor returns what the installed roles allow a service account, which has their name.
func (i installation) grantsFor(t *testing.T, name string) []grant {
	t.Helper()
	everywhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	here := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: name}}
	i.Get(t, everywhere)
	i.Get(t, here)
	grants := grantsOf(append(everywhere.Rules, here.Rules...))
	if len(grants) < 5 {
		t.Fatalf("the test sees the grants %v only", grants)
	}
	return grants
}

// bound is a token of the runtime's service account that is bound to a pod on a node.
type bound struct{ node, pod, token string }

// node makes the token that a runtime's pod has.
func (i installation) node(t *testing.T) bound {
	t.Helper()
	var hosts corev1.NodeList
	if err := i.Client.List(t.Context(), &hosts); err != nil || len(hosts.Items) < 2 {
		t.Fatalf("there are %d nodes, want two at least (%v)", len(hosts.Items), err)
	}
	b := bound{node: hosts.Items[0].Name, pod: "runtime-of-the-test"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: b.pod},
		Spec:       corev1.PodSpec{NodeName: b.node, ServiceAccountName: smolVMRuntime, Containers: []corev1.Container{{Name: "runtime", Image: "runtime"}}},
	}
	i.Create(t, pod)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMRuntime}}
	if err := i.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	b.token = request.Status.Token
	return b
}

// with returns a client with a token.
func (i installation) with(t *testing.T, token string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", i.kubeconfig(t, token))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: i.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// policyIsSound: Kubernetes has checked the types of the policy's expressions.
func (i installation) policyIsSound(t *testing.T) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: smolVMRuntime}}
	lab.Eventually(t, lab.Timeout, func() error {
		if i.Get(t, policy); policy.Status.TypeChecking == nil {
			return errors.New("the types are not checked yet")
		}
		return nil
	})
	if w := policy.Status.TypeChecking.ExpressionWarnings; len(w) > 0 {
		t.Errorf("Kubernetes warns of expressions: %+v", w)
	}
}

// onlyItsOwnNode: the token of a runtime writes the SmolVMNode of its node, and one of no node writes none. Requests are dry
// runs that are answered as others are.
func (i installation) onlyItsOwnNode(t *testing.T, b bound) {
	t.Helper()
	ofNoNode := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMRuntime}}
	if err := i.Client.SubResource("token").Create(t.Context(), account, ofNoNode); err != nil {
		t.Fatal(err)
	}
	other := &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: "there-already"}}
	i.Create(t, other)
	for name, c := range map[string]struct{ token, node, want string }{
		"the own node":                    {b.token, b.node, ""},
		"another node":                    {b.token, "elsewhere", "its token is of node " + b.node},
		"another node that has an object": {b.token, other.Name, "its token is of node " + b.node},
		"a token of no node":              {ofNoNode.Status.Token, b.node, "its token is of no node"},
	} {
		t.Run(name, func(t *testing.T) {
			writer := i.with(t, c.token)
			lab.Eventually(t, lab.Timeout, func() error {
				return answered(c.want, writer.Patch(t.Context(), &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: c.node}}, applied(c.node),
					client.FieldOwner("test"), client.DryRunAll))
			})
			if c.node != other.Name {
				return
			}
			err := writer.Status().Patch(t.Context(), &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: c.node}}, client.RawPatch(types.MergePatchType, []byte(`{"status":{"runtimeVersion":"x"}}`)),
				&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			if err := answered(c.want, err); err != nil {
				t.Errorf("its status: %s", err)
			}
		})
	}
	i.Delete(t, other)
}

func applied(name string) client.Patch {
	return client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"vm.smolvm.dev/v1alpha1","kind":"SmolVMNode","metadata":{"name":"`+name+`","labels":{"a":"b"}}}`))
}

// answered returns an error unless an answer is the wanted one; empty for success.
func answered(want string, err error) error {
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		return fmt.Errorf("err = %w, want it to say %q", errors.Join(err), want)
	}
	return nil
}

// inBackground runs a command until the returned function is called or the test ends. Its log is shown if the test fails.
func inBackground(t *testing.T, arguments []string) (stop func()) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), arguments[0]+".log"))
	if err != nil {
		t.Fatal(err)
	}
	command := cmd.New()
	command.SetOut(log)
	command.SetErr(log)
	command.SetArgs(arguments)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s ended with an error: %s", arguments[0], err)
		}
	})
	t.Cleanup(func() {
		stop()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("log of %s (%v):\n%s", arguments[0], err, text)
		}
	})
	return stop
}

// tokenFile writes the installed token where the test's processes find it.
func (i installation) tokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(i.token(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runController runs the controller with the installed arguments. What is appended are places of this machine.
func (i installation) runController(t *testing.T) (stop func()) {
	t.Helper()
	set := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMController}}
	i.Get(t, set)
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: set.Spec.Template.Spec.ServiceAccountName}}
	if err := i.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	address := loopback.FreeAddress(t)
	stop = inBackground(t, append(set.Spec.Template.Spec.Containers[0].Args, "--service.kubernetes.incluster=false", "--service.kubernetes.kubeconfigpath="+i.kubeconfig(t, request.Status.Token),
		"--server.listen.address=http://"+address, "--service.smolvm.tokenfile="+i.tokenFile(t)))
	for _, probe := range []*corev1.Probe{set.Spec.Template.Spec.Containers[0].StartupProbe, set.Spec.Template.Spec.Containers[0].ReadinessProbe} {
		lab.Eventually(t, lab.Timeout, func() error {
			_, err := loopback.Get("http://" + address + probe.HTTPGet.Path)
			return err
		})
	}
	return stop
}

// runRuntime runs the runtime of a node with the installed arguments and the token of its pod.
func (i installation) runRuntime(t *testing.T, b bound, machines *playedMachines) (stop func()) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMRuntime}}
	i.Get(t, set)
	for name, value := range map[string]string{
		"NODE_NAME": b.node, "POD_NAME": b.pod, "POD_NAMESPACE": smolVMs, "POD_IP": "127.0.0.1", clientcmd.RecommendedConfigPathEnvVar: i.kubeconfig(t, b.token),
	} {
		t.Setenv(name, value)
	}
	address := loopback.FreeAddress(t)
	container := set.Spec.Template.Spec.Containers[0]
	stop = inBackground(t, append(container.Command[1:], "--bind-address="+address, "--metrics-bind-address=", "--smolvm-serve-command=",
		"--state-directory="+t.TempDir(), "--smolvm-api-socket="+machines.socket, "--token-file="+i.tokenFile(t)))
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		lab.Eventually(t, lab.Timeout, func() error { return askRuntime("https://" + address + probe.HTTPGet.Path) })
	}
	return stop
}

// askRuntime asks as a kubelet does, which verifies no certificate.
func askRuntime(url string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.InsecureSkipVerify = true
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		return errors.Join(fmt.Errorf("%s answers %s: %s", url, response.Status, body), err)
	}
	return nil
}

// lifeOfASmolVM starts a machine and deletes it.
func (i installation) lifeOfASmolVM(t *testing.T, node string, machines *playedMachines) {
	t.Helper()
	i.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"user","password":"of the registry"}}}`)},
	})
	vm := &v1alpha1.SmolVM{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "chart"},
		Spec: v1alpha1.SmolVMSpec{
			// The disk of this machine may have little room.
			Running: true, Image: "alpine:latest", Storage: v1alpha1.Storage{StorageGiB: 1, OverlayGiB: 1}, ImagePullSecrets: []v1alpha1.SecretReference{{Name: "registry"}},
		},
	}
	i.Create(t, vm)
	lab.Eventually(t, lab.Timeout, func() error {
		if i.Get(t, vm); vm.Status.Phase != v1alpha1.PhaseRunning || vm.Status.NodeName != node {
			return fmt.Errorf("it is %s on %q: %v", vm.Status.Phase, vm.Status.NodeName, vm.Status.Conditions)
		}
		return nil
	})
	if !machines.has(vm.Status.MachineName) {
		t.Errorf("there is no machine %s", vm.Status.MachineName)
	}
	if auth := machines.authOf(vm.Status.MachineName); auth == nil || auth.Password != "of the registry" {
		t.Error("it was not started with the credentials of its Secret")
	}
	i.Delete(t, vm)
	i.AwaitGone(t, vm)
	if machines.has(vm.Status.MachineName) {
		t.Errorf("machine %s is there after its SmolVM", vm.Status.MachineName)
	}
}

// goneIsTheRest: the workloads are gone, and the definitions stay with what they define.
func (i installation) goneIsTheRest(t *testing.T) {
	t.Helper()
	for _, object := range []client.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: smolVMRuntime}}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: smolVMController}}} {
		object.SetNamespace(smolVMs)
		i.AwaitGone(t, object)
	}
	for _, name := range []string{"smolvms.vm.smolvm.dev", "smolvmnodes.vm.smolvm.dev"} {
		i.Get(t, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}
