package apply

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

var outdatedError = &microerror.Error{Kind: "outdatedError", Desc: "The cache was behind the API server; the next reconcile sees what is there."}

// IsOutdated reports whether an apply lost a race against a change that the cache had not seen yet. A retry fixes it.
func IsOutdated(err error) bool { return errors.Is(err, outdatedError) }

// OnlyOutdated returns whether a handler failed, and all that failed lost a race. Nothing is known of the objects then, and
// the next pass begins at once.
func OnlyOutdated(results []chain.Result) bool {
	failed := slices.DeleteFunc(slices.Clone(results), func(r chain.Result) bool { return r.Err == nil })
	return len(failed) > 0 && !slices.ContainsFunc(failed, func(r chain.Result) bool { return !IsOutdated(r.Err) })
}

func outdatedf(format string, args ...any) error {
	return microerror.Maskf(outdatedError, format, args...)
}

// RequestError is a request that the API server rejected or did not respond to. Its text is stable, so that it can be
// used in a condition; Unwrap returns the cause with addresses and versions.
type RequestError struct {
	Verb, Object string
	Err          error

	// text describes Err; if it is empty, stable does.
	text string
}

// Error says what was tried on which object and why it failed.
func (r *RequestError) Error() string {
	text := r.text
	if text == "" {
		text = stable(r.Err)
	}
	return fmt.Sprintf("%s %s: %s", r.Verb, r.Object, text)
}

// Unwrap returns the cause.
func (r *RequestError) Unwrap() error { return r.Err }

// madeAnew reports whether a request for one object met another of the same name.
func madeAnew(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// Reasons of problems with an object that is in the way or is rejected.
const (
	reasonRefused      = "Refused"
	reasonNotOwned     = "NotOwned"
	reasonOwnedByOther = "OwnedByOther"
)

// requestError describes the error of a request. What the API server calls invalid stays invalid until something
// changes: a node port that another Service has, a value that an admission policy rejects.
func requestError(verb, ref string, err error) error {
	if err == nil {
		return nil
	}
	if madeAnew(err) {
		return outdatedf("%s was deleted and recreated by another client", ref)
	}
	if apierrors.IsInvalid(err) {
		return problem.Newf(reasonRefused, "the API server refuses to %s %s: %s", verb, ref, Causes(err))
	}
	return &RequestError{Verb: verb, Object: ref, Err: err}
}

// failingWebhook matches what an API server says of a webhook that it cannot call. Addresses and causes follow, which change.
var failingWebhook = regexp.MustCompile(`failed calling webhook "([^"]{1,253})"`)

// stable describes an error without the parts that change from attempt to attempt.
func stable(err error) string {
	switch {
	case apierrors.IsConflict(err):
		return "another client changed it at the same time"
	case apierrors.IsTooManyRequests(err):
		return "the API server asks for fewer requests"
	case isWorded(err):
		return err.Error()
	case failingWebhook.MatchString(err.Error()):
		return "the API server cannot call the webhook " + failingWebhook.FindStringSubmatch(err.Error())[1] + ", which has to admit it"
	case apierrors.ReasonForError(err) != "":
		return "the API server answers " + string(apierrors.ReasonForError(err))
	default:
		return "the API server did not answer"
	}
}
