package realcluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

const pollInterval = 50 * time.Millisecond

// await calls try until it succeeds. It gives up when the process that try depends on ends, or the context does. The
// error is that of the last complete try, with the end of the process's log.
func await(ctx context.Context, p *process.Process, what string, try func(context.Context) error) error {
	if err := poll.Until(ctx, pollInterval, p.Done(), try); err != nil {
		return fmt.Errorf("waiting for %s: %w; %w", what, err, p.Failure())
	}
	return nil
}

// get succeeds when a URL answers 200.
func get(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), url string) error {
	return poll.Get(ctx, &http.Transport{DialContext: dial, DisableKeepAlives: true}, url)
}

// combined runs a command and returns its output.
func combined(run func(*exec.Cmd) error, command *exec.Cmd) (string, error) {
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := run(command)
	return output.String(), err
}
