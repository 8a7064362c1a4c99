package apply

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// IsForeign returns whether an error is the problem that an object of a needed name exists and is not the owner's.
func IsForeign(err error) bool {
	var p *problem.Problem
	return errors.As(err, &p) && (p.Reason == reasonNotOwned || p.Reason == reasonOwnedByOther)
}

// Causes returns the text of a refusal of the API server or of a webhook, with the field before each cause that does
// not name it. Without causes it is the text of the error.
func Causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}
	var causes []string
	unnamed := false
	for _, cause := range status.Status().Details.Causes {
		text := cause.Message
		if cause.Field != "" && !strings.Contains(text, cause.Field) {
			text = cause.Field + ": " + text
			// The API server's own refusals name all fields; their causes leave them out.
			unnamed = unnamed || !strings.Contains(err.Error(), cause.Field)
		}
		causes = append(causes, text)
	}
	if !unnamed {
		return err.Error()
	}
	refused, _, _ := strings.Cut(status.Status().Message, ": ")
	return refused + ": " + strings.Join(causes, "; ")
}
