package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// maxMessage bounds the text of an error in messages, in bytes, because runtimes and registries choose it.
const maxMessage = 4 << 10

// errSilent means that a runtime took a request and did not answer.
var errSilent = errors.New("it did not answer in time")

// errIdentity means that the runtime is that of another node. It was not asked for its machines.
var errIdentity = errors.New("it is not the runtime of the node")

// reasons are those of the codes of the API. Others follow from the status of HTTP.
var reasons = map[api.Code]string{
	api.CodeImagePullFailed:     v1alpha1.ReasonImagePullFailed,
	api.CodeImageMalformed:      v1alpha1.ReasonImagePullFailed,
	api.CodeUnsupportedArtifact: v1alpha1.ReasonUnsupportedArtifact,
	api.CodePortInUse:           v1alpha1.ReasonPortConflict,
	api.CodeDiskFull:            v1alpha1.ReasonDiskFull,
	api.CodeTimeout:             v1alpha1.ReasonTimeout,
	api.CodeUnauthorized:        v1alpha1.ReasonUnauthorized,
	api.CodeForbidden:           v1alpha1.ReasonUnauthorized,
}

// reasonOf returns the reason and the message of an error of a request to a runtime. The message has no parts that change
// from attempt to attempt. The status and the code of the runtime are in it.
func (n Node) reasonOf(err error) (reason, message string) {
	var told *api.Error
	switch {
	case errors.Is(err, errCertificate), errors.Is(err, errIdentity):
		reason = v1alpha1.ReasonCertificateMismatch
	case errors.Is(err, errToken):
		reason = v1alpha1.ReasonUnauthorized
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errSilent):
		reason = v1alpha1.ReasonTimeout
		err = errSilent
	case errors.As(err, &told):
		return reasonOfAnswer(told), text.Beginning(sentence(told), maxMessage)
	default:
		reason = v1alpha1.ReasonRuntimeUnavailable
		err = errors.New(text.Cause(err))
	}
	return reason, text.Beginning(fmt.Sprintf("runtime of node %s at %s: %s", n.Name, n.address(), err), maxMessage)
}

func reasonOfAnswer(e *api.Error) string {
	if reason, ok := reasons[e.Code]; ok {
		return reason
	}
	switch status := e.Status(); {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return v1alpha1.ReasonUnauthorized
	case status >= 300 && status < 400:
		// A runtime never sends its clients elsewhere.
		return v1alpha1.ReasonCertificateMismatch
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return v1alpha1.ReasonTimeout
	case status == http.StatusInsufficientStorage:
		return v1alpha1.ReasonDiskFull
	case status >= 400 && status < 500:
		return v1alpha1.ReasonInvalidRequest
	}
	return v1alpha1.ReasonRuntimeUnavailable
}

func sentence(e *api.Error) string {
	if e.Code == "" {
		return fmt.Sprintf("smolvm API returned HTTP %d: %s", e.Status(), e.Message)
	}
	return fmt.Sprintf("smolvm API returned HTTP %d %s: %s", e.Status(), e.Code, e.Message)
}
