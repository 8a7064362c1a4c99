// Package poll waits for what takes its time.
package poll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Until calls try until it succeeds. If the context ends first, or a process on which try depends, the error is that of
// the last complete try, which says what was waited for. It wraps the context's error. ended may be nil.
func Until(ctx context.Context, interval time.Duration, ended <-chan struct{}, try func(context.Context) error) error {
	ticker := time.NewTicker(interval)
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
		case <-ended:
			return last
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Eventually waits until a condition returns no error. It fails the test with the last error after the timeout.
func Eventually(t testing.TB, timeout, interval time.Duration, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(interval) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", timeout, err)
		}
	}
}

// Get succeeds when a URL answers 200. Otherwise the error quotes the answer, which says what is not ready.
func Get(ctx context.Context, transport http.RoundTripper, url string) error {
	_, err := Read(ctx, transport, url)
	return err
}

// Read is Get, and returns the beginning of the answer.
func Read(ctx context.Context, transport http.RoundTripper, url string) (string, error) {
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if response.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body))), err)
	}
	return string(body), err
}
