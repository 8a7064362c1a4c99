package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Client talks to a keeper over its control socket.
type Client struct {
	// Socket is the path of the control socket.
	Socket string
}

// Status stores the status of the machine in status, a pointer to what the Status of its Guest returns.
func (c Client) Status(ctx context.Context, status any) error {
	raw, err := c.do(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, status); err != nil {
		return fmt.Errorf("reading the runner's answer: %w", err)
	}
	return nil
}

// Release releases a held machine.
func (c Client) Release(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/release", nil)
	return err
}

// QMP runs a command of QEMU's monitor and returns its response, both as JSON.
func (c Client) QMP(ctx context.Context, command []byte) ([]byte, error) {
	return c.do(ctx, http.MethodPost, "/qmp", command)
}

// Console returns the last 64 KiB that the guest printed.
func (c Client) Console(ctx context.Context) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "/console", nil)
}

// Type types text on the guest's console.
func (c Client) Type(ctx context.Context, text string) error {
	_, err := c.do(ctx, http.MethodPost, "/console", []byte(text))
	return err
}

func (c Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://runner"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("asking the runner: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the runner's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the runner refuses: %s", strings.TrimSpace(string(raw)))
	}
	return raw, nil
}

func (c Client) dial(ctx context.Context) (net.Conn, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("%w; is the runner running, and is this its container?", err)
	}
	return connection, nil
}

// Attach connects to the guest's console: reads return what the guest printed, starting 64 KiB back, and writes are
// typed in.
func (c Client) Attach(ctx context.Context) (io.ReadWriteCloser, error) {
	return c.Connect(ctx, "/console", consoleUpgrade)
}
