package text

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
)

// MostSteady is how many bytes Steady returns at most.
const MostSteady = 1 << 10

// volatile are the parts of a text that change although nothing has changed. This is the only list of them.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	// Of a time, its day is left.
	{regexp.MustCompile(`(\d{4}-\d\d-\d\d)[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)?( UTC)?( m=[+-][\d.]+)?`), "$1"},
	// The kernel assigns the ports of clients.
	{regexp.MustCompile(`:\d+->`), "->"},
	// HTTP/2 counts its streams.
	{regexp.MustCompile(`(stream ID |LastStreamID=)\d+`), "$1…"},
	{regexp.MustCompile(`(^|[\s("=])(\d+(\.\d+)?(h|m|s|ms|µs|ns))+\b`), "$1…"},
	// When its deadline ends decides how gRPC wraps an error.
	{regexp.MustCompile(`rpc error: code = \w+ desc = |latest balancer error: |received context error while waiting for new LB policy update: `), ""},
	{regexp.MustCompile(`connection error: desc = "((?:[^"\\]|\\.)*)("|$)`), "$1"},
}

// Steady removes from a text what changes without new information, such as times, durations and ports of clients, and
// what is beyond MostSteady bytes: tenants choose many of these texts. A status with an unsteady text would be written
// repeatedly.
func Steady(of string) string {
	of = Beginning(of, 4*MostSteady)
	for _, v := range volatile {
		of = v.pattern.ReplaceAllString(of, v.instead)
	}
	return Beginning(of, MostSteady)
}

// Cause returns, as Steady does, why a request over the network got no answer. It leaves out the request and the
// addresses, which the caller names.
func Cause(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var connection *net.OpError
	var call *os.SyscallError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it ended the connection"
	case errors.As(err, &connection) && errors.As(connection.Err, &call):
		err = call.Err
	case connection != nil:
		err = connection.Err
	}
	return Steady(err.Error())
}
