package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Reason says why a workload cluster is Unreachable.
type Reason string

// The Reasons. If there are several addresses, the attempt that got furthest determines the reason; the reasons are in
// that order.
const (
	// AccessInvalid means that certificate, key or CA cannot be parsed, so that nothing was tried.
	AccessInvalid Reason = "AccessInvalid"
	// ResponseTooLarge means that the cluster sends, or has, more than the operator reads of one.
	ResponseTooLarge Reason = "ResponseTooLarge"
	// NotReady means that the API server reports that it is not ready, or that it is overloaded (429, 5xx).
	NotReady Reason = "NotReady"
	// Unauthorized means that the API server rejects the operator's certificate (401, 403, or by a TLS alert).
	Unauthorized Reason = "Unauthorized"
	// CertificateExpired means that the API server's certificate, or that of its CA, has expired or is not valid yet.
	CertificateExpired Reason = "CertificateExpired"
	// CertificateInvalid means that the API server's certificate is for another name or for another purpose.
	CertificateInvalid Reason = "CertificateInvalid"
	// UnknownAuthority means that another CA signed the API server's certificate.
	UnknownAuthority Reason = "UnknownAuthority"
	// Refused means that the connection was refused, or closed before anything was sent.
	Refused Reason = "Refused"
	// Timeout means that there was no response in time.
	Timeout Reason = "Timeout"
	// NoRoute means that the name of the address does not resolve, or the network has no route to it.
	NoRoute Reason = "NoRoute"
	// NoAddress means that no address is known yet.
	NoAddress Reason = "NoAddress"
	// Other is anything else; what responds is probably not an API server.
	Other Reason = "Other"
)

// farthest lists the reasons by how far an attempt got before it failed.
var farthest = []Reason{
	AccessInvalid, ResponseTooLarge, NotReady, Unauthorized, CertificateExpired, CertificateInvalid, UnknownAuthority, Refused, Timeout, NoRoute, NoAddress, Other,
}

// statusError is an error response.
type statusError struct {
	code int
	// failing are the checks that /readyz reports as failing.
	failing []string
	// ahead is by how much the API server's clock is ahead of the operator's.
	ahead time.Duration
}

// clockTolerance is how far clocks may differ without a hint in the message. The response itself may have been in
// flight for some time.
const clockTolerance = 5 * time.Minute

// clock returns the hint about the API server's clock.
func (e *statusError) clock() string {
	switch {
	case e.ahead > clockTolerance:
		return "; its clock is ahead of the operator's by more than five minutes"
	case e.ahead < -clockTolerance:
		return "; its clock is behind the operator's by more than five minutes"
	}
	return ""
}

// Error names the status.
func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d %s", e.code, http.StatusText(e.code))
}

// addressesError holds the error of each address.
type addressesError []error

// Error joins the texts.
func (e addressesError) Error() string { return errors.Join(e...).Error() }

// Unwrap returns only the most telling error, because errors.As would find the others before it.
func (e addressesError) Unwrap() error {
	return slices.MinFunc(e, func(a, b error) int { return distance(a) - distance(b) })
}

func distance(err error) int { return slices.Index(farthest, classify(err)) }

// classify returns the reason for an error of a request.
func classify(err error) Reason {
	var access *accessError
	var status *statusError
	switch {
	case errors.As(err, &access):
		return AccessInvalid
	case errors.Is(err, errResponseTooLarge):
		return ResponseTooLarge
	case errors.Is(err, errNoAddress):
		return NoAddress
	case errors.Is(err, errNoWatch):
		return Timeout
	case errors.As(err, &status):
		return ofStatus(status.code)
	}
	if reason := ofTLS(err); reason != "" {
		return reason
	}
	return ofNetwork(err)
}

func ofStatus(code int) Reason {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return Unauthorized
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return NotReady
	default:
		return Other
	}
}

// ofTLS returns the reason for an error of the handshake, or "" for any other error.
func ofTLS(err error) Reason {
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var verification *tls.CertificateVerificationError
	var operation *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return CertificateExpired
	case errors.As(err, &invalid), errors.As(err, &name):
		return CertificateInvalid
	case errors.As(err, &authority):
		return UnknownAuthority
	case errors.As(err, &verification):
		return CertificateInvalid
	case errors.As(err, &operation) && operation.Op == "remote error" && aboutCertificate(operation.Err.Error()):
		return Unauthorized
	default:
		return ""
	}
}

// aboutCertificate reports whether a TLS alert is about the client certificate. Alerts have no exported type.
func aboutCertificate(alert string) bool {
	return strings.Contains(alert, "certificate") || strings.Contains(alert, "access denied")
}

// lostConnection is how net/http reports that a ping was not answered; the error has no exported type.
const lostConnection = "client connection lost"

func ofNetwork(err error) Reason {
	var name *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &name) && !name.IsTimeout, isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL):
		return NoRoute
	case isAny(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF):
		return Refused
	case isAny(err, context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT),
		errors.As(err, &timeout) && timeout.Timeout(), err != nil && strings.Contains(err.Error(), lostConnection):
		return Timeout
	default:
		return Other
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// message returns a sentence for a person. It contains only what stays the same from attempt to attempt.
func message(reason Reason, err error, serverName string) string {
	var status *statusError
	if reason == NotReady && errors.As(err, &status) && len(status.failing) > 0 {
		return "the API server is not ready: " + strings.Join(status.failing, ", ")
	}
	switch reason {
	case Unauthorized:
		if errors.As(err, &status) {
			return messages[reason] + status.clock()
		}
	case AccessInvalid:
		return err.Error()
	case CertificateInvalid:
		return fmt.Sprintf("the API server's certificate is not one for %s", serverName)
	}
	return messages[reason]
}

var messages = map[Reason]string{
	ResponseTooLarge: "the cluster has, or sends, more objects than the operator reads from one cluster: remove CertificateSigningRequests, " +
		"or ConfigMaps and other objects with the label " + key.LabelManagedBy + "=" + key.Operator,
	NotReady:           "the API server is not ready",
	Unauthorized:       "the API server does not accept the operator's certificate",
	CertificateExpired: "the API server's certificate has expired or is not valid yet, or a clock is wrong",
	UnknownAuthority:   "the API server's certificate was not signed by the cluster's CA",
	Refused:            "the connection to the API server is refused",
	Timeout:            "the API server does not answer in time",
	NoRoute:            "there is no route to the API server's address",
	NoAddress:          "no address of the API server is known yet",
	Other:              "what answers at the API server's address does not behave like an API server",
}
