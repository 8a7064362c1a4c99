package joining

import (
	"regexp"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// volatile are the parts of a message that change although nothing has changed: durations, times and the ports that the
// kernel assigns to clients.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)?( m=[+-][\d.]+)?`), "…"},
	{regexp.MustCompile(`:\d+->`), "->"},
	{regexp.MustCompile(`(stream ID |LastStreamID=)\d+`), "$1…"}, // errors of HTTP/2
	{regexp.MustCompile(`(^|[\s("=])(\d+(\.\d+)?(h|m|s|ms|µs|ns))+\b`), "$1…"},
}

// longestMessage and longestReason are how many bytes are passed on, because root on a node can write anything to the
// status of its Node.
const (
	longestMessage = 1 << 10
	longestReason  = 128
)

// Steady removes from a message what changes without new information, and what is too long. A status with such a
// message would be written again and again.
func Steady(message string) string {
	message = text.Beginning(message, 4*longestMessage)
	for _, v := range volatile {
		message = v.pattern.ReplaceAllString(message, v.instead)
	}
	return text.Beginning(message, longestMessage)
}
