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

// answerTimeout is how long the API server may take to say whether it is ready, once connected. One that is busy is not gone:
// who gives it up asks it for everything anew.
const answerTimeout = 15 * time.Second

// largestReport bounds what is read of a report of checks.
const largestReport = 64 << 10

// probe asks whether the API server is ready.
func (l *link) probe(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Connecting has bounds of its own: a slow handshake leaves the answer its time.
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
	defer response.Body.Close() //nolint:errcheck // it was read as far as it is of interest
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &statusError{
		code: response.StatusCode, failing: failingChecks(io.LimitReader(response.Body, largestReport)), ahead: ahead(response.Header, time.Now()),
	}
}

// ahead is by how much the clock of who gave an answer is ahead of now.
func ahead(answer http.Header, now time.Time) time.Duration {
	date, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		return 0
	}
	return date.Sub(now)
}

// causeOr prefers the reason for which a context was ended to the error that came of it.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// failingChecks reads the names of checks that fail out of a report of /readyz. The hooks of a start come and go too fast
// to be worth a word.
// See https://kubernetes.io/docs/reference/using-api/health-checks/.
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
