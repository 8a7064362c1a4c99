package service

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// startPatience is how long the caches may take to fill before the log explains why they are not filled, and the
// interval at which it does so.
const startPatience = 5 * time.Second

// Run runs the operator until the context ends. It fails if the servers cannot listen, if the caches cannot be filled,
// and if another replica has taken the lead. In the last case it does not wait for work in progress, because that can
// no longer change anything.
func (s *Service) Run(ctx context.Context) error {
	defer s.hangUp()
	if err := s.listen(); err != nil {
		return err
	}
	// The manager does not end while it waits for caches. It would only use all of a CPU, so it learns of the end of
	// the context once they are filled.
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		<-s.filled
		stop()
	})
	ended := make(chan error, 1)
	go func() { ended <- s.manager.Start(managed) }()
	go s.explain(ctx)
	select {
	case err := <-ended:
		return microerror.Mask(err)
	case <-s.fence.Lost():
		return microerror.Maskf(lostError, "%s", s.lock.Leader())
	case <-ctx.Done():
	}
	select {
	case <-s.filled:
		return microerror.Mask(<-ended)
	default:
		// There is no work in progress yet that has to end in order.
		return nil
	}
}

// lostError means that a replica led and no longer does. It has to restart because what it knows may be out of date.
var lostError = &microerror.Error{Kind: "lostError"}

// closer closes a channel when the manager starts it, which is after the manager has filled the caches.
type closer chan struct{}

// NeedLeaderElection returns false: the caches of a replica that waits are filled too.
func (c closer) NeedLeaderElection() bool { return false }

// Start closes the channel.
func (c closer) Start(context.Context) error {
	close(c)
	return nil
}

// explain logs what the operator waits for while it cannot start, because watches are retried without a log entry.
func (s *Service) explain(ctx context.Context) {
	logger := log.Log.WithName("start")
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.filled:
			logger.Info("caches are filled")
			return
		case <-time.After(startPatience):
		}
		if err := ask(ctx, s.rest); err != nil {
			logger.Error(err, "waiting for the API server; check address and credentials", "address", s.rest.Host)
			continue
		}
		logger.Info("waiting for caches", "address", s.rest.Host, "why", s.unready())
	}
}

// ask sends the API server a request that needs only a connection and valid credentials.
func ask(ctx context.Context, config *rest.Config) error {
	client, err := rest.UnversionedRESTClientFor(forVersion(config))
	if err != nil {
		return err
	}
	return client.Get().AbsPath("/version").Do(ctx).Error()
}

func forVersion(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Timeout = startPatience
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return c
}
