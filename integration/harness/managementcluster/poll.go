package managementcluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const pollInterval = 25 * time.Millisecond

// poll requests a URL as administrator until the answer is 200. The cluster's own CA must have signed the server's
// certificate, so another process on that port is not mistaken for the component.
func (a *authority) poll(ctx context.Context, url string, dial func(context.Context, string, string) (net.Conn, error)) error {
	pair, err := a.issue(clientCertificate("admin", administrators))
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.certificate, pair.key)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{certificate}},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	return repeat(ctx, func(ctx context.Context) error { return get(ctx, client, url) })
}

// get succeeds when a URL answers 200. Otherwise the error quotes the answer, which says what is not ready.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
}

// repeat calls try until it succeeds. When the context ends first, the error is that of the last complete try, which
// says what repeat waited for, and wraps the context's error.
func repeat(ctx context.Context, try func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
