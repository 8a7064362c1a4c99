package service

import "context"

// unready returns why the operator is not ready; it is empty when the operator is ready.
func (s *Service) unready() string {
	if why := s.life.Unfilled(); why != "" {
		return why
	}
	return s.outdated(context.Background())
}
