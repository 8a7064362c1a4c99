package service

import (
	"context"
	"time"

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
	go s.explain(ctx)
	return s.life.Run(ctx, s.manager, s.lock)
}

// explain logs what the operator waits for while it cannot start, because watches are retried without a log entry.
func (s *Service) explain(ctx context.Context) {
	logger := log.Log.WithName("start")
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.life.Filled():
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
