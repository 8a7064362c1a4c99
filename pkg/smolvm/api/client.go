package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// Bounds of answers in bytes: the server may be another's program, and a server of a node is no more trusted than the
// node.
const (
	maxAnswer     = 32 << 20
	maxExecAnswer = 64 << 20
	maxErrorBody  = 64 << 10
	maxErrorText  = 1 << 10
	maxHeader     = 64 << 10
)

// Bounds of time that do not depend on what is asked.
const (
	dialTimeout = 10 * time.Second
	idleTimeout = 90 * time.Second
)

// Options are how a Client reaches its server. The zero value is right for a unix socket.
type Options struct {
	// HTTP makes the requests instead of a client made here. It is not changed, and none of its redirects is followed.
	HTTP *http.Client
	// TLS is for https. Nil: the system's roots. Not with HTTP.
	TLS *tls.Config
	// Token returns the bearer token of each request. Nil: none.
	Token func() (string, error)
}

// Client asks a server of the API: smolvm, or package server. It may be used concurrently. How long a request takes is
// bounded by its context alone: starting a machine may pull an image first. Errors of the server are *Error with its
// status and code, see ErrorOf, CodeOf and IsNotFound.
type Client struct {
	address string
	base    string
	http    *http.Client
	token   func() (string, error)
	// patience is how long a watch may be silent.
	patience time.Duration
}

// DefaultAddress returns where smolvm listens unless told otherwise: smolvm.sock in $XDG_RUNTIME_DIR, or in /tmp.
func DefaultAddress() string {
	directory := os.Getenv("XDG_RUNTIME_DIR")
	if directory == "" {
		directory = "/tmp"
	}
	return "unix://" + filepath.Join(directory, "smolvm.sock")
}

// NewClient returns a client of the server at an address: unix:///path, http://host:port or https://host:port, the last
// two with a path if the API is below it.
func NewClient(address string, o Options) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address of smolvm: %w", err)
	}
	c := &Client{address: address, token: o.Token, base: strings.TrimSuffix(address, "/"), patience: watchPatience}
	socket := ""
	switch parsed.Scheme {
	case "unix":
		if parsed.Host != "" || !filepath.IsAbs(parsed.Path) {
			return nil, fmt.Errorf("reading the address of smolvm: %q is not unix:///path", address)
		}
		socket, c.base = parsed.Path, "http://localhost"
	case "http", "https":
		if parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
			return nil, fmt.Errorf("reading the address of smolvm: %q is not %s://host:port", parsed.Redacted(), parsed.Scheme)
		}
	default:
		return nil, fmt.Errorf("reading the address of smolvm: %q does not start with unix://, http:// or https://", parsed.Redacted())
	}
	c.http = httpClient(o, socket)
	return c, nil
}

// httpClient returns a client that follows no redirect: the API has none, and the token is for its server only.
func httpClient(o Options, socket string) *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if o.HTTP != nil {
		own := *o.HTTP
		own.CheckRedirect = stay
		return &own
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		TLSClientConfig: o.TLS, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout,
		DialContext: dialer.DialContext, MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
	}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: stay}
}

// Close closes the connections that wait for another request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is a request: a method, the path with its escapes, and the query.
type call struct {
	method, path string
	query        url.Values
	// body becomes JSON unless it is an io.Reader. Nil: none.
	body any
}

// send makes a request. The caller closes the body of the answer, whose status is 200.
func (c *Client) send(ctx context.Context, q call) (*http.Response, error) {
	request, err := c.request(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("calling %s %s of smolvm: %w", q.method, q.path, err)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		// The error of package http repeats the method and the address.
		var detail *url.Error
		if errors.As(err, &detail) {
			err = detail.Err
		}
		return nil, fmt.Errorf("calling %s %s of smolvm at %s: %w", q.method, q.path, c.address, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, errorOfAnswer(answer)
}

func (c *Client) request(ctx context.Context, q call) (*http.Request, error) {
	body, isJSON, err := bodyOf(q.body)
	if err != nil {
		return nil, err
	}
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, err
	}
	if isJSON {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token == nil {
		return request, nil
	}
	token, err := c.token()
	if err != nil {
		return nil, fmt.Errorf("getting the token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

func bodyOf(value any) (body io.Reader, isJSON bool, err error) {
	if value == nil {
		return http.NoBody, false, nil
	}
	if reader, ok := value.(io.Reader); ok {
		return reader, false, nil
	}
	text, err := json.Marshal(value)
	return bytes.NewReader(text), true, err
}

// errorOfAnswer returns the error that an answer is. Proxies, and the framework under smolvm, answer in plain text or
// with nothing; then there is no code.
func errorOfAnswer(answer *http.Response) *Error {
	// What cannot be read is as good as not said: the status counts.
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	found := &Error{}
	if json.Unmarshal(text, found) != nil || found.Message == "" {
		found = &Error{Message: fmt.Sprintf("smolvm answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))}
		if words := printable(string(text)); words != "" {
			found.Message += ": " + words
		}
	}
	found.HTTPStatus = answer.StatusCode
	return found
}

// printable returns the beginning of a text on one line. It ends in conditions and logs.
func printable(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
}

// ask makes a request and decodes the answer of at most limit bytes.
func ask[T any](ctx context.Context, c *Client, q call, limit int64) (T, error) {
	var value T
	answer, err := c.send(ctx, q)
	if err != nil {
		return value, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return value, fmt.Errorf("reading the answer to %s %s of smolvm: %w", q.method, q.path, err)
	case int64(len(text)) > limit:
		return value, fmt.Errorf("reading the answer to %s %s of smolvm: it has more than %d bytes", q.method, q.path, limit)
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, fmt.Errorf("decoding the answer to %s %s of smolvm: %w", q.method, q.path, err)
	}
	return value, nil
}

// hasType reports whether an answer is of a media type.
func hasType(answer *http.Response, want string) bool {
	got, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return err == nil && got == want
}
