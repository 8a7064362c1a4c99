package smolvmruntime

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// maxToken is how many bytes a token may have. Those of ServiceAccounts have about 1 KiB.
const maxToken = 16 << 10

// errUndecided says that a token can be neither accepted nor refused for the time being.
var errUndecided = errors.New("the token cannot be checked")

// authenticator decides whether a token is the controller's. The context may say where it came from. An error is
// errUndecided.
type authenticator interface {
	Authenticate(ctx context.Context, token string) (bool, error)
}

// clientKey is the key of a client's address in a context.
type clientKey struct{}

// withClient returns a context that says which address a token came from.
func withClient(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, clientKey{}, address)
}

// clientOfContext returns the address that a token came from; empty if it is not known.
func clientOfContext(ctx context.Context) string {
	address, _ := ctx.Value(clientKey{}).(string)
	return address
}

// authenticators accept what one of them accepts.
type authenticators []authenticator

// Authenticate implements authenticator.
func (a authenticators) Authenticate(ctx context.Context, token string) (bool, error) {
	var errs []error
	for _, each := range a {
		ok, err := each.Authenticate(ctx, token)
		if ok {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// everyone accepts every client.
type everyone struct{}

// Authenticate implements authenticator.
func (everyone) Authenticate(context.Context, string) (bool, error) { return true, nil }

// tokenFile accepts the token in a file, as it is at the time: kubelet replaces the file when the Secret changes.
type tokenFile string

// Authenticate implements authenticator.
func (f tokenFile) Authenticate(_ context.Context, token string) (bool, error) {
	want, err := readToken(string(f))
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUndecided, err)
	}
	return sameToken(token, want), nil
}

// fixedToken accepts one token.
type fixedToken string

// Authenticate implements authenticator.
func (f fixedToken) Authenticate(_ context.Context, token string) (bool, error) {
	return sameToken(token, string(f)), nil
}

// sameToken takes as long for a token that is nearly right as for others. An empty token is none.
func sameToken(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}

// readToken returns the token in a file, without white space around it.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxToken:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxToken)
	}
	return strings.TrimSpace(string(text)), nil
}

// bearer returns the token of a request (RFC 6750, section 2.1); empty if it has none, or more than one.
func bearer(header http.Header) string {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || len(token) > maxToken || strings.ContainsFunc(token, notOfToken) {
		return ""
	}
	return token
}

// notOfToken reports whether a token has no such character.
func notOfToken(r rune) bool { return r <= ' ' || r > '~' }
