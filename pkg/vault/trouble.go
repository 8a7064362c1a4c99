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

	"github.com/kvm-operator/kvm-operator/pkg/fence"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

const (
	// patience is how long one request to Vault may take.
	patience = 10 * time.Second
	// restFor is how long Vault is left alone after it did not answer: whoever asks meanwhile gets the last answer, so that a cluster
	// that needs ten certificates waits for one of them only.
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

// ask has something done with a token. When Vault does not accept the token, it is done once more with another one.
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

// admit refuses with the last trouble while Vault is left alone. After that one request finds out whether it is over; those beside it are refused
// until it has, for each of them would wait as long.
func (i *Issuer) admit() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trouble != nil && (i.probing || i.clock.Now().Before(i.rest)) {
		return i.trouble
	}
	i.probing = true
	return nil
}

// settle keeps in mind what is wrong with Vault as a whole; nil when it has answered.
func (i *Issuer) settle(trouble error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.probing, i.trouble = false, trouble
	if trouble != nil {
		i.rest = i.clock.Now().Add(restFor)
	}
}

// judge says what is wrong in words that a person can do something about, and whether it is Vault as a whole.
func (i *Issuer) judge(err error) (whole bool, judged error) {
	if err == nil {
		return false, nil
	}
	if _, known := problem.As(err); known {
		return false, err
	}
	if errors.Is(err, fence.ErrRefused) {
		return false, microerror.Mask(err) // Vault was not asked
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
	return true, problem.Newf(reasonUnreachable, "%s cannot be reached: %s", where, cause(err))
}

// status is that of Vault's answer; 0 when there was none.
func status(err error) int {
	var answer *api.ResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// of is the request that was answered so: "PUT /v1/…".
func of(err error) string {
	var answer *api.ResponseError
	if !errors.As(err, &answer) {
		return "a request"
	}
	_, path, _ := strings.Cut(answer.URL, "/v1/")
	return answer.HTTPMethod + " " + path
}

func said(err error) string {
	var answer *api.ResponseError
	if !errors.As(err, &answer) {
		return err.Error()
	}
	return strings.Join(answer.Errors, "; ")
}

// cause is the innermost error: those around it name ports that change from try to try.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// isTaken says that there is a mount at a path already.
func isTaken(err error) bool {
	return status(err) == http.StatusBadRequest && strings.Contains(said(err), "path is already in use")
}

// isMissing says that there is no mount at a path.
func isMissing(err error) bool {
	return status(err) == http.StatusBadRequest && strings.Contains(strings.ToLower(said(err)), "no secret engine mount")
}
