package apply_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

func denial(message string, causes ...metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Message: message, Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{Causes: causes}}}
}

// TestCauses: a refusal names each field once, whether its message does or not.
func TestCauses(t *testing.T) {
	const webhook = `admission webhook "v.kubevirt.io" denied the request`
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Disk"}, "a", field.ErrorList{field.Invalid(field.NewPath("spec", "size"), 0, "too small")})
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no answer of an API server":    {errors.New("EOF"), "EOF"},
		"a denial without causes":       {denial(webhook + ": no"), webhook + ": no"},
		"a cause that names its field":  {denial(webhook+": spec.a is odd", metav1.StatusCause{Field: "spec.a", Message: "spec.a is odd"}), webhook + ": spec.a is odd"},
		"a cause without a field":       {denial(webhook+": odd", metav1.StatusCause{Message: "odd"}), webhook + ": odd"},
		"the API server's own refusal":  {invalid, `Disk "a" is invalid: spec.size: Invalid value: 0: too small`},
		"causes that name no field":     {denial(webhook+": odd, even", metav1.StatusCause{Field: "spec.a", Message: "odd"}, metav1.StatusCause{Field: "spec.b", Message: "even"}), webhook + ": spec.a: odd; spec.b: even"},
		"a denial inside another error": {fmt.Errorf("applying: %w", denial(webhook+": odd", metav1.StatusCause{Field: "spec.a", Message: "odd"})), webhook + ": spec.a: odd"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := apply.Causes(test.err); got != test.want {
				t.Errorf("it says %q instead of %q", got, test.want)
			}
		})
	}
}

func TestIsForeign(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error":         {nil, false},
		"another error":    {errors.New("EOF"), false},
		"another problem":  {problem.Newf("Refused", "no"), false},
		"without an owner": {problem.Newf("NotOwned", "no"), true},
		"of another owner": {fmt.Errorf("applying: %w", problem.Newf("OwnedByOther", "no")), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := apply.IsForeign(test.err); got != test.want {
				t.Errorf("it is %t", got)
			}
		})
	}
}
