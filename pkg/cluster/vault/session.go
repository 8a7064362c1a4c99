package vault

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// session keeps the token that authenticates the operator.
type session struct {
	config Config
	clock  clock.PassiveClock

	mu    sync.Mutex
	token string
	// until is when the token has to be replaced. If it is zero, the token is used until Vault rejects it.
	until time.Time
}

// hold makes sure that the client has a token.
func (s *session) hold(ctx context.Context, client *api.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || !s.until.IsZero() && !s.clock.Now().Before(s.until) {
		if err := s.begin(ctx, client); err != nil {
			return err
		}
	}
	client.SetToken(s.token)
	return nil
}

// end discards the token.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = ""
}

func (s *session) begin(ctx context.Context, client *api.Client) error {
	if s.config.TokenFile != "" {
		token, err := read(s.config.TokenFile)
		s.token, s.until = token, time.Time{}
		return err
	}
	jwt, err := read(s.config.KubernetesTokenFile)
	if err != nil {
		return err
	}
	answer, err := client.Logical().WriteWithContext(ctx, "auth/"+s.config.KubernetesMount+"/login", map[string]any{
		"role": s.config.KubernetesRole, "jwt": jwt,
	})
	if err != nil {
		return err
	}
	if answer == nil || answer.Auth == nil || answer.Auth.ClientToken == "" {
		return problem.Newf(reasonDenied, "Vault's auth method %q gives no token for role %q", s.config.KubernetesMount, s.config.KubernetesRole)
	}
	// A token is replaced when a third of its lease is left, so that no token expires while it is used.
	s.token, s.until = answer.Auth.ClientToken, time.Time{}
	if lease := time.Duration(answer.Auth.LeaseDuration) * time.Second; lease > 0 {
		s.until = s.clock.Now().Add(lease * 2 / 3)
	}
	return nil
}

func read(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", problem.Newf(reasonDenied, "there is no token for Vault: %s", err)
	}
	return strings.TrimSpace(string(data)), nil
}
