package service

import (
	"context"
	"io"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
)

// Limits of what is read from a console.
const (
	consoleLines = 20
	consoleBytes = 2 << 10
)

// consoles reads the end of the logs of node pods, to which runners print the consoles of their machines.
func consoles(config *rest.Config) (func(ctx context.Context, namespace, pod string) (string, error), error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	return func(ctx context.Context, namespace, pod string) (string, error) {
		log, err := clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
			Container: nodestep.Container, TailLines: ptr.To[int64](consoleLines), LimitBytes: ptr.To[int64](consoleBytes),
		}).Stream(ctx)
		if err != nil {
			return "", microerror.Mask(err)
		}
		defer log.Close() //nolint:errcheck // everything of interest was read
		// The server may not respect the limit of the request.
		text, err := io.ReadAll(io.LimitReader(log, consoleBytes))
		return string(text), microerror.Mask(err)
	}, nil
}
