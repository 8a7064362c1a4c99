package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func escape(path string) string { return url.QueryEscape(path) }

// call sends a request and gives the answer's body to read. An answer that refuses is an api.Error.
func (c Client) call(ctx context.Context, method, path string, body io.Reader, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, body)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("asking the process of the machine: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		refusal := &api.Error{HTTPStatus: response.StatusCode}
		if err := json.NewDecoder(io.LimitReader(response.Body, maxExec)).Decode(refusal); err != nil || refusal.Message == "" {
			refusal.Message = "the process of the machine answers " + response.Status
		}
		return refusal
	}
	if read == nil {
		return nil
	}
	return read(response.Body)
}
