package nodes

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func TestReasonsOfErrors(t *testing.T) {
	n := Node{Name: "n1", IP: "10.0.0.1", Port: 9443}
	const from = "runtime of node n1 at https://10.0.0.1:9443: "
	refused := &net.OpError{Op: "dial", Net: "tcp", Source: &net.TCPAddr{Port: 43210}, Err: syscall.ECONNREFUSED}
	for name, test := range map[string]struct {
		err             error
		reason, message string
	}{
		"a code":                       {api.Errorf(api.CodePortInUse, "port 80"), v1alpha1.ReasonPortConflict, "smolvm API returned HTTP 409 PORT_IN_USE: port 80"},
		"a code in a chain":            {fmt.Errorf("a: %w", api.Errorf(api.CodeImageMalformed, "b")), v1alpha1.ReasonImagePullFailed, "smolvm API returned HTTP 400 IMAGE_MALFORMED: b"},
		"a port that is not published": {api.Errorf(api.CodeUnsupported, "not 22"), v1alpha1.ReasonInvalidRequest, "smolvm API returned HTTP 400 UNSUPPORTED: not 22"},
		"an artifact of the mode vm":   {api.Errorf(api.CodeUnsupportedArtifact, "a"), v1alpha1.ReasonUnsupportedArtifact, "smolvm API returned HTTP 400 UNSUPPORTED_ARTIFACT: a"},
		"an artifact that is missing":  {api.Errorf(api.CodeBadRequest, "sidecar file not found"), v1alpha1.ReasonInvalidRequest, "smolvm API returned HTTP 400 BAD_REQUEST: sidecar file not found"},
		"the status of the answer":     {&api.Error{Message: "a", Code: api.CodeDiskFull, HTTPStatus: 500}, v1alpha1.ReasonDiskFull, "smolvm API returned HTTP 500 DISK_FULL: a"},
		"401":                          {&api.Error{Message: "a", HTTPStatus: 401}, v1alpha1.ReasonUnauthorized, "smolvm API returned HTTP 401: a"},
		"403":                          {&api.Error{Message: "a", HTTPStatus: 403}, v1alpha1.ReasonUnauthorized, "smolvm API returned HTTP 403: a"},
		"a redirect":                   {&api.Error{Message: "a", HTTPStatus: 307}, v1alpha1.ReasonCertificateMismatch, "smolvm API returned HTTP 307: a"},
		"a proxy's time":               {&api.Error{Message: "a", HTTPStatus: 504}, v1alpha1.ReasonTimeout, "smolvm API returned HTTP 504: a"},
		"a proxy's disk":               {&api.Error{Message: "a", HTTPStatus: 507}, v1alpha1.ReasonDiskFull, "smolvm API returned HTTP 507: a"},
		"422":                          {&api.Error{Message: "a", HTTPStatus: 422}, v1alpha1.ReasonInvalidRequest, "smolvm API returned HTTP 422: a"},
		"503":                          {api.Errorf(api.CodeUnavailable, "a"), v1alpha1.ReasonRuntimeUnavailable, "smolvm API returned HTTP 503 UNAVAILABLE: a"},
		"another certificate":          {fmt.Errorf("tls: %w", errCertificate), v1alpha1.ReasonCertificateMismatch, from + "tls: it does not have the certificate of the runtime"},
		"no token":                     {fmt.Errorf("getting: %w", errToken), v1alpha1.ReasonUnauthorized, from + "getting: the controller has no token for runtimes"},
		"time":                         {fmt.Errorf("a: %w", context.DeadlineExceeded), v1alpha1.ReasonTimeout, from + "it did not answer in time"},
		"silence":                      {errSilent, v1alpha1.ReasonTimeout, from + "it did not answer in time"},
		"a port that changes":          {fmt.Errorf("a: %w", refused), v1alpha1.ReasonRuntimeUnavailable, from + "connection refused"},
		"the end of a connection":      {fmt.Errorf("a: %w", net.ErrClosed), v1alpha1.ReasonRuntimeUnavailable, from + "a: use of closed network connection"},
		"words of a registry, bounded": {api.Errorf(api.CodeImagePullFailed, "%s", strings.Repeat("w", 1<<20)), v1alpha1.ReasonImagePullFailed, "smolvm API returned HTTP 502 IMAGE_PULL_FAILED: "},
	} {
		t.Run(name, func(t *testing.T) {
			reason, message := n.reasonOf(test.err)
			if reason != test.reason || message != test.message && !strings.Contains(name, "bounded") || !strings.HasPrefix(message, test.message) || len(message) > maxMessage {
				t.Errorf("it is %s, %.200s; want %s, %s", reason, message, test.reason, test.message)
			}
		})
	}
}

func TestPausesGrowAndEnd(t *testing.T) {
	for failures, want := range map[int]string{1: "1s", 2: "2s", 6: "32s", 7: "1m0s", 1000: "1m0s"} {
		if got := Defaults.pause(failures).String(); got != want {
			t.Errorf("after %d failures it is %s, want %s", failures, got, want)
		}
	}
}
