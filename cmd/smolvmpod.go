package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/service"
)

// runtimeContainer is the container of the runtime in its pod.
const runtimeContainer = "smolvm-runtime"

// microVM is the machine of a SmolVM, and where smolvm is asked about it.
type microVM struct {
	vm      *v1alpha1.SmolVM
	machine string
	pod     client.ObjectKey
	config  *rest.Config
}

// findGuest finds the pod of the runtime that has the machine of a SmolVM.
func findGuest(ctx context.Context, kubeconfig clientcmd.ClientConfig, namespace, name string) (*microVM, error) {
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		return nil, &runner.ExitError{Code: exitSettings, Message: fmt.Sprintf("reading the kubeconfig: %v", err)}
	}
	kinds, err := service.NewScheme()
	if err != nil {
		return nil, err
	}
	// The kinds are known: nothing has to be asked, and no right is needed, to find out what the API server serves.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("SmolVM"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("SmolVMNode"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	live, err := client.New(config, client.Options{Scheme: kinds, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	g := &microVM{vm: &v1alpha1.SmolVM{}, config: config}
	if err := get(ctx, live, client.ObjectKey{Namespace: namespace, Name: name}, g.vm, "kubectl get smolvms --all-namespaces lists those that there are"); err != nil {
		return nil, err
	}
	if g.machine, err = machineOf(g.vm); err != nil {
		return nil, err
	}
	g.pod, err = runtimeOf(ctx, live, g.vm.Status.NodeName)
	return g, err
}

// get reads an object. The error says what it is, and what to do if it is not there.
func get(ctx context.Context, live client.Reader, key client.ObjectKey, into client.Object, missing string) error {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", into), "*v1alpha1.")
	what := kind + " " + strings.TrimPrefix(key.String(), "/")
	switch err := live.Get(ctx, key, into); {
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err):
		return fmt.Errorf("reading %s: the management cluster knows no SmolVMs: install the chart with smolvm.enabled=true, or choose another context", what)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s does not exist; %s", what, missing)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("reading %s: %w; an administrator may run this command, see --help", what, err)
	case err != nil:
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

// machineName is what names of machines are like: none begins like a flag.
var machineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// machineOf returns the name of the machine of a SmolVM on its node.
func machineOf(vm *v1alpha1.SmolVM) (string, error) {
	name := vm.Namespace + "/" + vm.Name
	if vm.Status.NodeName == "" {
		why := "the controller has not seen it yet; is it running?"
		if c := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionScheduled); c != nil {
			why = c.Message
		}
		return "", fmt.Errorf("SmolVM %s has no node: %s", name, why)
	}
	if !machineName.MatchString(vm.Status.MachineName) {
		return "", fmt.Errorf("SmolVM %s has no machine yet: kubectl -n %s get smolvm %s -o wide says what it waits for", name, vm.Namespace, vm.Name)
	}
	return vm.Status.MachineName, nil
}

// runtimeOf returns the pod of the runtime of a node. A runtime says itself which one that is, and one on a node that was
// taken over could name any pod: it has to be on that node.
func runtimeOf(ctx context.Context, live client.Reader, node string) (client.ObjectKey, error) {
	var reported v1alpha1.SmolVMNode
	if err := get(ctx, live, client.ObjectKey{Name: node}, &reported, "the runtime of the node has never reported: is the DaemonSet smolvm-runtime there?"); err != nil {
		return client.ObjectKey{}, err
	}
	key := client.ObjectKey{Namespace: reported.Status.Endpoint.PodNamespace, Name: reported.Status.Endpoint.PodName}
	if key.Namespace == "" || key.Name == "" {
		return key, fmt.Errorf("SmolVMNode %s does not say which pod its runtime is; kubectl get smolvmnode %s -o yaml shows how it is", node, node)
	}
	way := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/name=smolvm-runtime -o wide shows those of all nodes", key.Namespace)
	var pod corev1.Pod
	switch err := live.Get(ctx, key, &pod); {
	case apierrors.IsNotFound(err):
		return key, fmt.Errorf("the pod %s of the runtime of node %s is gone, and no other one has reported yet; %s", key, node, way)
	case apierrors.IsForbidden(err):
		return key, fmt.Errorf("reading the pod of the runtime of node %s: %w; an administrator may run this command, see --help", node, err)
	case err != nil:
		return key, fmt.Errorf("reading the pod of the runtime of node %s: %w", node, err)
	case pod.Spec.NodeName != node:
		return key, fmt.Errorf("SmolVMNode %s names the pod %s, which is on another node: %q; do not trust that node", node, key, pod.Spec.NodeName)
	case pod.Status.Phase != corev1.PodRunning:
		return key, fmt.Errorf("the pod %s of the runtime of node %s does not run: it is %s; %s", key, node, pod.Status.Phase, way)
	}
	return key, nil
}

// logs prints the console. To stop following is no error.
func (g *microVM) logs(ctx context.Context, c *cobra.Command, tail int, follow bool) error {
	err := g.run(ctx, c, []string{"logs", "--attended", "--tail=" + strconv.Itoa(tail), "--follow=" + strconv.FormatBool(follow), g.machine}, nil)
	if err != nil && ctx.Err() != nil {
		if follow {
			return nil
		}
		return &runner.ExitError{Code: exitInterrupted}
	}
	return err
}

// run runs a command of smolvm machine in the pod of the runtime, until it ends or the context does. Its standard input
// stays open behind the input: it ends with the connection, and with it what runs in the pod and in the machine. Nothing
// else would tell these that it is lost.
func (g *microVM) run(ctx context.Context, c *cobra.Command, arguments []string, input []byte) error {
	clients, err := kubernetes.NewForConfig(g.config)
	if err != nil {
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	request := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(g.pod.Namespace).Name(g.pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: runtimeContainer, Command: append([]string{"smolvm", "machine"}, arguments...), Stdin: true, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	stream, err := remotecommand.NewWebSocketExecutor(g.config, "GET", request.URL().String())
	if err != nil {
		return fmt.Errorf("connecting to the pod %s: %w", g.pod, err)
	}
	open, end := io.Pipe()
	defer end.Close() //nolint:errcheck // nothing is written to it
	// The library logs an error for each stream that is cut, also by Ctrl-C; what matters is returned, too.
	err = stream.StreamWithContext(klog.NewContext(ctx, logr.Discard()), remotecommand.StreamOptions{
		Stdin: io.MultiReader(bytes.NewReader(input), open), Stdout: forPeople(c.OutOrStdout()), Stderr: forPeople(c.ErrOrStderr()),
	})
	var ended exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended) && ended.Exited():
		return &runner.ExitError{Code: ended.ExitStatus()} // smolvm has said why
	// The library wraps the API server's answer in a type that does not give it away.
	case strings.Contains(strings.ToLower(err.Error()), "forbidden"):
		return fmt.Errorf("running smolvm in the pod %s of the runtime of node %s: %w; it needs the rights to get and create pods/exec there, which make a user root on the node: ask an administrator",
			g.pod, g.vm.Status.NodeName, err)
	}
	return fmt.Errorf("running smolvm in the pod %s of the runtime of node %s: %w", g.pod, g.vm.Status.NodeName, err)
}
