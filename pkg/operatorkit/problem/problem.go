// Package problem has the error that only a person can fix.
package problem

import (
	"errors"
	"fmt"
)

// Problem is an error that only a person can fix: an invalid spec, a missing or foreign object. It becomes a condition
// and is checked again when one of the objects concerned changes.
type Problem struct {
	// Reason is a CamelCase word for the handler's condition.
	Reason string
	// Message names the object, what is wrong with it and how to fix it.
	Message string
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// Newf returns a Problem.
func Newf(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// As finds the Problem in err. If err joins several errors and one of them is not a Problem, As finds none: the
// transient error takes precedence, because it has to be retried.
func As(err error) (*Problem, bool) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var first *Problem
		for _, e := range joined.Unwrap() {
			p, ok := As(e)
			if !ok {
				return nil, false
			}
			if first == nil {
				first = &Problem{Reason: p.Reason}
			} else {
				first.Message += "; "
			}
			first.Message += p.Message
		}
		return first, first != nil
	}
	var p *Problem
	ok := errors.As(err, &p)
	return p, ok
}
