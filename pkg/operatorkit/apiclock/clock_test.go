package apiclock_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apiclock"
)

type server func() (date string, err error)

func (s server) RoundTrip(*http.Request) (*http.Response, error) {
	date, err := s()
	return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, err
}

func TestTheTimeIsThatOfTheAPIServer(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 400e6, time.UTC)
	for name, test := range map[string]struct {
		own   time.Duration // how far the own clock is ahead
		takes time.Duration // how long the response takes to arrive
		date  string        // instead of the right one
		err   error
		want  time.Duration // how far the clock is ahead then
	}{
		"the own clock is right":              {},
		"it is a little off":                  {own: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"it is a day ahead":                   {own: 24 * time.Hour, want: 600 * time.Millisecond},
		"it is a day behind":                  {own: -24 * time.Hour, want: -400 * time.Millisecond},
		"it is right, and the answer is slow": {takes: 20 * time.Second},
		"it is ahead, and the answer is slow": {own: time.Hour, takes: 20 * time.Second, want: 600 * time.Millisecond},
		"the answer has no date":              {own: time.Hour, date: "none", want: time.Hour},
		"the answer has an invalid date":      {own: time.Hour, date: "yesterday", want: time.Hour},
		"there is no answer":                  {own: time.Hour, err: errors.New("refused"), want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			own := testingclock.NewFakePassiveClock(now.Add(test.own))
			c := apiclock.New(own)
			date := now.Format(http.TimeFormat)
			if test.date != "" {
				date = test.date
			}
			transport := c.Transport(server(func() (string, error) {
				own.SetTime(now.Add(test.own + test.takes))
				return date, test.err
			}))
			response, err := transport.RoundTrip(nil)
			if !errors.Is(err, test.err) {
				t.Errorf("the error is %v", err)
			}
			if err == nil {
				defer response.Body.Close()
			}
			if ahead := c.Now().Sub(now.Add(test.takes)); ahead != test.want {
				t.Errorf("the clock is %s ahead, want %s", ahead, test.want)
			}
			if got, want := c.Difference(), (test.own - test.want).Abs(); test.date == "" && test.err == nil && got != want {
				t.Errorf("the clocks are said to be %s apart, want %s", got, want)
			}
			if since := c.Since(now.Add(test.takes)); since != test.want {
				t.Errorf("it is %s since the answer, want %s", since, test.want)
			}
		})
	}
}

// jumping is a clock that is set to other times, and that knows how much time has really elapsed.
type jumping struct {
	clock.RealClock
	shows time.Time
}

func (j *jumping) Now() time.Time                { return j.shows }
func (j *jumping) Since(time.Time) time.Duration { return time.Minute }

func TestSettingTheClockOfTheMachineDoesNotSetIt(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	own := &jumping{shows: now}
	c := apiclock.New(own)
	own.shows = now.Add(24 * time.Hour)
	if got := c.Now(); !got.Equal(now.Add(time.Minute)) {
		t.Errorf("after a minute it is %s", got)
	}
}
