package ociimage

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
)

// PullError says why an image could not be pulled: its registry is unknown or silent, refuses it, does not have it, or
// sends something else.
type PullError struct {
	// Reference is what was to be pulled.
	Reference string
	// Status is that of HTTP with which the registry refused it; 0 if it answered nothing, or something wrong.
	Status int
	// Err has the words of the registry, and those of the mirrors that were asked before.
	Err error
}

// Error names the reference and what the registries said.
func (e *PullError) Error() string { return fmt.Sprintf("pulling %s: %v", e.Reference, e.Err) }

// Unwrap returns the cause.
func (e *PullError) Unwrap() error { return e.Err }

// PlatformError says that there is no image for the platform of the machine.
type PlatformError struct {
	// Reference is what was to be pulled.
	Reference string
	// Wanted is the platform that was asked for, such as linux/amd64.
	Wanted string
	// Available are those that there are.
	Available []string
}

// Error names the platforms.
func (e *PlatformError) Error() string {
	available := strings.Join(e.Available, ", ")
	if available == "" {
		available = "none"
	}
	return fmt.Sprintf("%s has no image for %s; it has %s", e.Reference, e.Wanted, available)
}

// What a registry may send instead of a blob.
var (
	errMismatch = errors.New("the content does not match its digest")
	errEndless  = errors.New("it sends more bytes than the manifest declares")
	errCut      = errors.New("the connection broke off")
	errRange    = errors.New("it sends another range than was requested")
	errPlain    = errors.New("only registries that are named as insecure are asked without TLS")
	errRedirect = errors.New("it redirects to an address that images must not come from")
)

// failure is what a registry did wrong.
type failure struct {
	host string
	// hidden are texts that must not be repeated.
	hidden []string
	// status is that of HTTP; 0 if it is not what is wrong.
	status int
	err    error
}

// Error has the words of the registry.
func (f *failure) Error() string {
	text := f.err.Error()
	for _, secret := range f.hidden {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return f.host + ": " + words(text)
}

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.err }

// failures are those of all registries that were asked, the last one last.
type failures []error

// Error has all of them in one line.
func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all of them.
func (f failures) Unwrap() []error { return f }

// status returns that of the last registry that was asked.
func (f failures) status() int {
	var last *failure
	if errors.As(f[len(f)-1], &last) {
		return last.status
	}
	return 0
}

// failed returns what a registry did wrong. status is that of HTTP, 0 if it is not what is wrong. What the registry repeats
// of the credentials that it got is hidden: its words reach people who may not read these.
func (s *source) failed(status int, err error) *failure {
	return &failure{host: s.host(), hidden: s.hidden, status: status, err: err}
}

// forms returns the texts by which a registry may repeat credentials.
func forms(auth *authn.AuthConfig) (all []string) {
	pair := ""
	if auth.Username != "" || auth.Password != "" {
		pair = base64.StdEncoding.EncodeToString([]byte(auth.Username + ":" + auth.Password))
	}
	quoted := strings.Trim(strconv.Quote(auth.Password), `"`)
	inJSON, _ := json.Marshal(auth.Password) // which is text
	for _, text := range []string{
		pair, strings.TrimRight(pair, "="), url.QueryEscape(auth.Password), url.PathEscape(auth.Password), string(inJSON[1 : len(inJSON)-1]), quoted,
		auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken,
	} {
		if text != "" {
			all = append(all, text)
		}
	}
	return all
}

// broken returns an error of the connection to a registry, or of the handshake with it. It is final if it does not pass.
func (s *source) broken(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, retry.ErrStalled) {
		err = cause
	}
	failed := s.failed(0, err)
	var answer *transport.Error
	if errors.As(err, &answer) {
		failed.status = answer.StatusCode
	}
	var untrusted *tls.CertificateVerificationError
	var unknown *net.DNSError
	switch {
	case failed.status != 0 && !retry.Passing(failed.status), errors.As(err, &untrusted), errors.As(err, &unknown) && unknown.IsNotFound,
		errors.Is(err, http.ErrSchemeMismatch) && !slices.Contains(s.guard.insecure, s.host()), errors.Is(err, errRedirect):
		return retry.Final(failed)
	}
	return failed
}

// maxAnswer bounds what is read of an error of a registry, in bytes.
const maxAnswer = 64 << 10

// refusal returns the error of a response (OCI distribution specification, "Error Codes"), and closes it.
func (s *source) refusal(response *http.Response) error {
	defer response.Body.Close() //nolint:errcheck // all that matters has been read
	var said struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	texts := []string{strings.TrimSpace("it answers " + strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode))}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && json.Unmarshal(body, &said) == nil {
		for _, e := range said.Errors {
			texts = append(texts, e.Code+": "+e.Message)
		}
	}
	failed := s.failed(response.StatusCode, errors.New(strings.Join(texts, ", ")))
	if !retry.Passing(response.StatusCode) {
		return retry.Final(failed)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		return retry.Later(failed, time.Duration(min(seconds, 3600))*time.Second)
	}
	return failed
}
