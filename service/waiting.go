package service

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// obstacleLength is the maximum length of a reported error, and obstaclesNamed the maximum number of reported kinds.
const (
	obstacleLength = 300
	obstaclesNamed = 3
)

// obstacles are the last errors of the watches, by kind, until the caches are filled.
type obstacles struct {
	mu     sync.Mutex
	byKind map[string]string
}

// note records an error of a watch. It is a toolscache.WatchErrorHandlerWithContext.
func (o *obstacles) note(ctx context.Context, reflector *toolscache.Reflector, err error) {
	o.mu.Lock()
	if o.byKind == nil {
		o.byKind = map[string]string{}
	}
	o.byKind[strings.TrimPrefix(reflector.TypeDescription(), "*")] = text.Beginning(err.Error(), obstacleLength)
	o.mu.Unlock()
	toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// String returns the kinds and the last error of each.
func (o *obstacles) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(o.byKind)) {
		if len(parts) == obstaclesNamed {
			parts = append(parts, "and others")
			break
		}
		parts = append(parts, kind+": "+o.byKind[kind])
	}
	return strings.Join(parts, "; ")
}

// unready returns why the operator is not ready; it is empty when the operator is ready.
func (s *Service) unready() string {
	select {
	case <-s.filled:
		return s.definitions.outdated(context.Background())
	default:
	}
	if why := s.obstacles.String(); why != "" {
		return "caches are not filled yet: " + why
	}
	return "caches are not filled yet: the API server has not answered"
}
