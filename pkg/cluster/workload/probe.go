package workload

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"
)

// answerTimeout is how long the API server may take to report whether it is ready, once connected. It is generous
// because a busy server still works, and reconnecting to it requests everything again.
const answerTimeout = 15 * time.Second

// largestReport bounds what is read of a report of checks.
const largestReport = 64 << 10

// probe asks whether the API server is ready.
func (l *link) probe(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Connecting has its own bounds, so that a slow handshake does not take time from the response.
	timer := time.AfterFunc(connectTimeout+answerTimeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { timer.Reset(answerTimeout) }})
	request, err := http.NewRequestWithContext(traced, http.MethodGet, "https://"+l.host+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := l.transport.RoundTrip(identified(traced, request))
	if err != nil {
		return causeOr(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read as far as needed
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &statusError{
		code: response.StatusCode, failing: failingChecks(io.LimitReader(response.Body, largestReport)), ahead: ahead(response.Header, time.Now()),
	}
}

// ahead returns by how much the server's clock is ahead of now.
func ahead(answer http.Header, now time.Time) time.Duration {
	date, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		return 0
	}
	return date.Sub(now)
}

// causeOr returns the cause of a context's end, if there is one, instead of the error that resulted from it.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// failingChecks reads the names of failing checks from a report of /readyz. Post-start hooks are left out, because they
// come and go too fast to be worth reporting. See https://kubernetes.io/docs/reference/using-api/health-checks/.
func failingChecks(report io.Reader) []string {
	var failing []string
	for lines := bufio.NewScanner(report); lines.Scan(); {
		name, found := strings.CutPrefix(lines.Text(), "[-]")
		name, _, _ = strings.Cut(name, " ")
		if found && !strings.HasPrefix(name, "poststarthook/") && len(failing) < shownChecks {
			failing = append(failing, name)
		}
	}
	return failing
}

// shownChecks is how many failing checks are named.
const shownChecks = 5
