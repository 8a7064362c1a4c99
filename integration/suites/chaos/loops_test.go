package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const statusOf = "/apis/provider.giantswarm.io/v1alpha1/namespaces/default/kvmconfigs/x00/status"

// TestRequestCounter: writes that say the same again are an endless loop long before writes that follow progress are.
func TestRequestCounter(t *testing.T) {
	status := func(n int, message string) string {
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"},"status":{"lastTransitionTime":"%d","message":%q}}`, n, n, message)
	}
	for name, test := range map[string]struct {
		method, path string
		body         func(n int) string
		every        time.Duration
		sent         int
		want         int // the limit that is reached, or 0
	}{
		"the same status, with another version each time": {http.MethodPut, statusOf,
			func(n int) string { return status(n, "waits") }, time.Second / 4, sameMost, sameMost},
		"two statuses in turn": {http.MethodPut, statusOf,
			func(n int) string { return status(n, []string{"removed", "refused"}[n%2]) }, time.Second / 8, 2 * sameMost, sameMost},
		"a rollout": {http.MethodPut, statusOf,
			func(n int) string { return status(n, fmt.Sprint("step ", n)) }, time.Second / 7, 100, 0},
		"a status that counts forever": {http.MethodPut, statusOf,
			func(n int) string { return status(n, fmt.Sprint("step ", n)) }, time.Second / 50, writesMost, writesMost},
		"the same status every second": {http.MethodPut, statusOf,
			func(n int) string { return status(n, "waits") }, time.Second, 100, 0},
		"Secrets of many clusters in one namespace": {http.MethodPost, "/api/v1/namespaces/default/secrets",
			func(n int) string { return fmt.Sprintf(`{"metadata":{"name":"s%d"}}`, n) }, time.Millisecond, 2 * writesMost, 0},
		"the same Secret": {http.MethodPost, "/api/v1/namespaces/default/secrets",
			func(int) string { return `{"metadata":{"name":"s"}}` }, time.Millisecond, sameMost, sameMost},
		"a list": {http.MethodGet, "/api/v1/namespaces",
			func(int) string { return "" }, time.Millisecond, readsMost, readsMost},
	} {
		t.Run(name, func(t *testing.T) {
			counter, now, got := &requestCounter{sent: map[string][]time.Time{}}, time.Now(), 0
			for n := range test.sent {
				request, err := http.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body(n)))
				if err != nil {
					t.Fatal(err)
				}
				if _, limit := counter.count(request, now); limit > 0 {
					got = limit
				}
				now = now.Add(test.every)
			}
			if most, limit, what := counter.closest(); got != test.want || (most == limit) != (test.want > 0) {
				t.Errorf("the limit %d was reached, and %d was expected; the busiest is %d of %d %s", got, test.want, most, limit, what)
			}
		})
	}
}
