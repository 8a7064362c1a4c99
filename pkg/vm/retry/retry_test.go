package retry

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAttempts(t *testing.T) {
	broken := errors.New("broken")
	policy := Policy{Attempts: 3, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	for name, test := range map[string]struct {
		// attempt is the n-th, from 1.
		attempt func(n int) (bool, error)
		tries   int
		want    error
		words   string
	}{
		"it works at once":         {func(int) (bool, error) { return false, nil }, 1, nil, ""},
		"it works later":           {func(n int) (bool, error) { return false, map[bool]error{true: broken}[n < 3] }, 3, nil, ""},
		"it never works":           {func(int) (bool, error) { return false, broken }, 3, broken, "given up after 3 attempts"},
		"it makes progress":        {func(n int) (bool, error) { return n < 5, broken }, 6, broken, "given up after"},
		"it is final":              {func(int) (bool, error) { return false, Final(broken) }, 1, broken, "broken"},
		"it is final among others": {func(int) (bool, error) { return false, errors.Join(errors.New("x"), Final(broken)) }, 1, broken, "broken"},
		"nothing is final":         {func(int) (bool, error) { return false, Final(nil) }, 1, nil, ""},
		"a pause is asked for":     {func(int) (bool, error) { return false, Later(broken, 3*time.Millisecond) }, 3, broken, "given up"},
	} {
		t.Run(name, func(t *testing.T) {
			n, told := 0, 0
			err := policy.Do(t.Context(), func(string, ...any) { told++ }, func() (bool, error) { n++; return test.attempt(n) })
			if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), test.words) || n != test.tries || told != n-1 {
				t.Errorf("%v after %d attempts, %d told", err, n, told)
			}
		})
	}
}

func TestContextEndsThePause(t *testing.T) {
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	policy := Policy{Attempts: 3, Backoff: time.Hour, MaxBackoff: time.Hour}
	err := policy.Do(ctx, func(string, ...any) { cancel(over) }, func() (bool, error) { return false, errors.New("broken") })
	if !errors.Is(err, over) {
		t.Errorf("the error is %v", err)
	}
}

// TestPausesAreBounded: a server cannot make a client wait for a day.
func TestPausesAreBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var pause any
	policy := Policy{Attempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}
	_ = policy.Do(ctx, func(_ string, arguments ...any) { pause = arguments[1]; cancel() }, func() (bool, error) {
		return false, Later(errors.New("busy"), 24*time.Hour)
	})
	if pause != maxAfter {
		t.Errorf("it waits for %v", pause)
	}
}

func TestPassingStatuses(t *testing.T) {
	for status, want := range map[int]bool{
		http.StatusInternalServerError: true, http.StatusServiceUnavailable: true, http.StatusTooManyRequests: true, http.StatusRequestTimeout: true,
		http.StatusNotFound: false, http.StatusForbidden: false, http.StatusUnauthorized: false,
	} {
		if got := Passing(status); got != want {
			t.Errorf("%d passes: %t", status, got)
		}
	}
}
