package problem_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/giantswarm/microerror"
	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

var (
	errTransient = errors.New("the API server did not answer")
	errForeign   = problem.Newf("Foreign", "Namespace %s is foreign", "x")
	errMissing   = problem.Newf("Missing", "Release v1 does not exist")
)

// TestProblemsAndOtherErrors: a transient error takes precedence over problems, however the two are wrapped, because it
// has to be retried.
func TestProblemsAndOtherErrors(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want *problem.Problem
	}{
		"no error":             {nil, nil},
		"a transient error":    {errTransient, nil},
		"a problem":            {errForeign, &problem.Problem{Reason: "Foreign", Message: "Namespace x is foreign"}},
		"a wrapped problem":    {fmt.Errorf("applying: %w", errForeign), &problem.Problem{Reason: "Foreign", Message: "Namespace x is foreign"}},
		"a masked problem":     {microerror.Mask(errForeign), &problem.Problem{Reason: "Foreign", Message: "Namespace x is foreign"}},
		"a transient masked":   {microerror.Mask(errTransient), nil},
		"one joined problem":   {errors.Join(nil, errForeign), &problem.Problem{Reason: "Foreign", Message: "Namespace x is foreign"}},
		"a transient, joined":  {errors.Join(errTransient), nil},
		"transient beside it":  {errors.Join(errForeign, errTransient), nil},
		"transient before it":  {errors.Join(errTransient, errForeign), nil},
		"masked join with one": {microerror.Mask(errors.Join(errForeign, errTransient)), nil},
		"two joined problems": {
			errors.Join(errForeign, errMissing),
			&problem.Problem{Reason: "Foreign", Message: "Namespace x is foreign; Release v1 does not exist"},
		},
		"a join in a join": {
			errors.Join(errors.Join(errForeign), microerror.Mask(errors.Join(errMissing))),
			&problem.Problem{Reason: "Foreign", Message: "Namespace x is foreign; Release v1 does not exist"},
		},
		"a transient deep in a join of joins": {errors.Join(errForeign, errors.Join(errMissing, errTransient)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := problem.As(test.err)
			if diff := cmp.Diff([2]any{test.want, test.want != nil}, [2]any{got, ok}); diff != "" {
				t.Errorf("it is judged otherwise (-want +got):\n%s", diff)
			}
		})
	}
}
