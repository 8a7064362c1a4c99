package service

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// startPatience is how long the caches may take to be filled before the log says why they are not, and how often it says so.
const startPatience = 5 * time.Second

// Run runs the operator until the context ends. It fails when the servers cannot listen or the caches cannot be filled, and when another
// replica has taken the lead: nothing that is under way is waited for then, because it can change nothing any more.
func (s *Service) Run(ctx context.Context) error {
	defer s.hangUp()
	if err := s.listen(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.manager.Start(ctx) }()
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
		// The manager does not stop while it waits for caches. Nothing is under way yet that would have to end in order.
		return nil
	}
}

// lostError is for a replica that led and does not any more. It has to begin anew: what it knows may be of the time before.
var lostError = &microerror.Error{Kind: "lostError"}

// closer closes a channel when the manager starts it, which is after it has filled the caches.
type closer chan struct{}

// NeedLeaderElection is false: the caches of a replica that waits are filled too.
func (c closer) NeedLeaderElection() bool { return false }

// Start closes the channel.
func (c closer) Start(context.Context) error {
	close(c)
	return nil
}

// explain says in the log what the operator waits for while it cannot begin: watches are retried in silence.
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

// ask asks the API server for any answer that needs no more than a connection and a known user.
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
