package joining

import (
	"regexp"
	"strings"
)

// volatile are the parts of a message that change although nothing has changed: durations, times and the ports that the
// kernel gives to clients.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)?( m=[+-][\d.]+)?`), "…"},
	{regexp.MustCompile(`:\d+->`), "->"},
	{regexp.MustCompile(`(stream ID |LastStreamID=)\d+`), "$1…"}, // errors of HTTP/2
	{regexp.MustCompile(`(^|[\s("=])(\d+(\.\d+)?(h|m|s|ms|µs|ns))+\b`), "$1…"},
}

// longest is how many bytes of a message are passed on: whoever rules a Node writes what he likes into its status.
const longest = 1 << 10

// Steady leaves out of a message what changes without telling anything new, and what is too long. A status that repeated it would be
// written again and again.
func Steady(message string) string {
	message = cut(message, 4*longest)
	for _, v := range volatile {
		message = v.pattern.ReplaceAllString(message, v.instead)
	}
	return cut(message, longest)
}

// cut is the beginning of a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
