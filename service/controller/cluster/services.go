package cluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Services are the Services of a cluster whose addresses handlers need; one that does not exist has no UID.
type Services struct{ Master, Worker, API corev1.Service }

func (s *Services) read(ctx context.Context, reader client.Reader, id string) error {
	var errs []error
	for name, service := range map[string]*corev1.Service{key.RoleMaster: &s.Master, key.RoleWorker: &s.Worker, key.PublishedService: &s.API} {
		errs = append(errs, client.IgnoreNotFound(reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace(id), Name: name}, service)))
	}
	return errors.Join(errs...)
}

// existing returns nil for a Service that was not found.
func existing(service *corev1.Service) *corev1.Service {
	if service.UID == "" {
		return nil
	}
	return service
}
