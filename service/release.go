package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// releases returns a function that tells runners to shut their machines down. It uses exec because a runner has no
// port, and nothing else reaches a pod that is being deleted: the kubelet no longer refreshes its volumes.
func releases(config *rest.Config) (func(ctx context.Context, namespace, pod string) error, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	return func(ctx context.Context, namespace, pod string) error {
		request := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{
				Container: nodestep.Container, Command: []string{nodepod.Binary, "runner", "release"}, Stdout: true, Stderr: true,
			}, scheme.ParameterCodec)
		executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
		if err != nil {
			return microerror.Mask(err)
		}
		var output bounded
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &output, Stderr: &output}); err != nil {
			if said := strings.TrimSpace(output.String()); said != "" {
				return fmt.Errorf("%w: %s", err, said)
			}
			return err
		}
		return nil
	}, nil
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
