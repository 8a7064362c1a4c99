package vault

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/hashicorp/vault/api"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

const (
	// patience is how long one request to Vault may take.
	patience = 10 * time.Second
	// restFor is how long no request is sent after Vault failed. Callers get the last error meanwhile, so that a
	// cluster that needs ten certificates waits only once.
	restFor = 20 * time.Second
)

// Reasons of problems with Vault.
const (
	reasonSealed      = "VaultSealed"
	reasonDenied      = "VaultDenied"
	reasonSlow        = "VaultSlow"
	reasonUnreachable = "VaultUnreachable"
	reasonRefused     = "VaultRefused"
)

// ask calls do with an authenticated client. If Vault rejects the token, it calls do again with a new token.
func (i *Issuer) ask(do func(context.Context, *api.Client) error) error {
	if err := i.admit(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	attempt := func() error {
		client, err := i.client.Clone()
		if err != nil {
			return err
		}
		if err := i.session.hold(ctx, client); err != nil {
			return err
		}
		return do(ctx, client)
	}
	err := attempt()
	if status(err) == http.StatusForbidden {
		i.session.end()
		err = attempt()
	}
	whole, err := i.judge(err)
	if whole {
		i.settle(err)
	} else {
		i.settle(nil)
	}
	return err
}

// admit returns the last error while no requests may be sent. After that, one request probes whether Vault works again;
// concurrent callers are refused until it has finished, because each of them would wait as long.
func (i *Issuer) admit() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trouble != nil && (i.probing || i.clock.Now().Before(i.rest)) {
		return i.trouble
	}
	i.probing = true
	return nil
}

// settle records what is wrong with Vault as a whole. trouble is nil if Vault has answered.
func (i *Issuer) settle(trouble error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.probing, i.trouble = false, trouble
	if trouble != nil {
		i.rest = i.clock.Now().Add(restFor)
	}
}

// judge translates an error into one that a person can act on, and reports whether it concerns Vault as a whole.
func (i *Issuer) judge(err error) (whole bool, judged error) {
	if err == nil {
		return false, nil
	}
	if _, known := problem.As(err); known {
		return false, err
	}
	if errors.Is(err, fence.ErrRefused) {
		return false, microerror.Mask(err) // no request was sent to Vault
	}
	where := "Vault at " + i.config.Address
	switch code := status(err); {
	case code == http.StatusServiceUnavailable:
		return true, problem.Newf(reasonSealed, "%s is sealed or has no active server; unseal it", where)
	case code == http.StatusForbidden:
		return false, problem.Newf(reasonDenied, "%s denies %s to the operator; give its token or role the policy of docs/certificates.md", where, of(err))
	case code != 0:
		return code == http.StatusTooManyRequests, problem.Newf(reasonRefused, "%s refuses %s: %s", where, of(err), said(err))
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return true, problem.Newf(reasonSlow, "%s has not answered within %s", where, patience)
	}
	return true, problem.Newf(reasonUnreachable, "%s cannot be reached: %s", where, text.Cause(err))
}

// status returns the HTTP status of Vault's response, or 0 if there was none.
func status(err error) int {
	var answer *api.ResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// of returns the request that got this response: "PUT /v1/…".
func of(err error) string {
	var answer *api.ResponseError
	if !errors.As(err, &answer) {
		return "a request"
	}
	_, path, _ := strings.Cut(answer.URL, "/v1/")
	return answer.HTTPMethod + " " + path
}

// said returns the words of Vault in a steady form. Vault says at what time a certificate would end, which is another one
// with each attempt: a condition would be written each time, and each write would cause the next attempt.
func said(err error) string {
	var answer *api.ResponseError
	if !errors.As(err, &answer) {
		return err.Error()
	}
	return text.Steady(strings.Join(answer.Errors, "; "))
}

// isTaken reports whether err means that a path already has a mount.
func isTaken(err error) bool {
	return status(err) == http.StatusBadRequest && strings.Contains(said(err), "path is already in use")
}

// isMissing reports whether err means that a path has no mount.
func isMissing(err error) bool {
	return status(err) == http.StatusBadRequest && strings.Contains(strings.ToLower(said(err)), "no secret engine mount")
}
