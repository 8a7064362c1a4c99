package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/giantswarm/microerror"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine/links"
)

// executor runs commands of this binary in containers. It uses exec because a runner has no port, and nothing else
// reaches a pod that is being deleted: the kubelet no longer refreshes its volumes.
type executor struct {
	config  *rest.Config
	clients kubernetes.Interface
}

func newExecutor(config *rest.Config) (*executor, error) {
	clients, err := kubernetes.NewForConfig(config)
	return &executor{config, clients}, microerror.Mask(err)
}

// run runs a command until it ends or the context does. in may be nil. The error has what the command said last.
func (e *executor) run(ctx context.Context, pod types.NamespacedName, container string, command []string, in io.Reader, out io.Writer) error {
	request := e.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: in != nil, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	stream, err := remotecommand.NewWebSocketExecutor(e.config, "GET", request.URL().String())
	if err != nil {
		return microerror.Mask(err)
	}
	var said bounded
	// The library logs an error for each stream that is cut, also when the context ends; what matters is returned, too.
	ctx = klog.NewContext(ctx, logr.Discard())
	err = stream.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: cmp.Or[io.Writer](out, &said), Stderr: &said})
	if text := strings.TrimSpace(said.String()); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// releases returns a function that tells runners to shut their machines down.
func releases(config *rest.Config) (func(ctx context.Context, namespace, pod string) error, error) {
	e, err := newExecutor(config)
	return func(ctx context.Context, namespace, pod string) error {
		command := []string{nodepod.Binary, "runner", "release"}
		return e.run(ctx, types.NamespacedName{Namespace: namespace, Name: pod}, nodestep.Container, command, nil, nil)
	}, err
}

// linker returns a function that links with the runners of virtual machines.
func linker(config *rest.Config) (links.Dial, error) {
	e, err := newExecutor(config)
	return func(ctx context.Context, runner virtualmachine.RunnerID, in io.Reader, out io.Writer) error {
		err := e.run(ctx, runner.Pod, runner.Container, []string{virtualmachine.Binary, "runner", "link"}, in, out)
		log.Log.WithName("link").Info("the connection to a runner ended", "namespace", runner.Pod.Namespace, "pod", runner.Pod.Name, "because", err)
		return err
	}, err
}

// fenced allows telling a runner only while this replica leads. The exec is a GET, so the fence of requests does not
// recognize it as a change.
func fenced(f *fence.Fence, release func(ctx context.Context, namespace, pod string) error) func(ctx context.Context, namespace, pod string) error {
	return func(ctx context.Context, namespace, pod string) error {
		if err := f.Check(); err != nil {
			return err
		}
		return release(ctx, namespace, pod)
	}
}
