package realcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

const pollInterval = 50 * time.Millisecond

// await calls try until it succeeds. It gives up when the process that try depends on ends, or the context does. The
// error is that of the last complete try, with the end of the process's log.
func await(ctx context.Context, p *process.Process, what string, try func(context.Context) error) error {
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
		case <-p.Done():
			return fmt.Errorf("waiting for %s: %w; %w", what, last, p.Failure())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w); %w", what, last, context.Cause(ctx), p.Failure())
		case <-ticker.C:
		}
	}
}

// get succeeds when a URL answers 200. Otherwise the error quotes the answer, which says what is not ready.
func get(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), url string) error {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
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
	return errors.Join(fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body))), err)
}

// combined runs a command and returns its output.
func combined(run func(*exec.Cmd) error, command *exec.Cmd) (string, error) {
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := run(command)
	return output.String(), err
}
