// Command web is a web server for tests of a cluster's network, and its client.
//
//	web [serve [--address IP] [--port 8080]] answers every request by the host's name, which in a pod is the pod's
//	web get [--timeout 5s] URL               prints the answer; exits 1 without one, or when its status is not 200
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const usage = "usage: web [serve [--address IP] [--port PORT]] | web get [--timeout DURATION] URL"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], out)
	case "get":
		return get(ctx, args[1:], out)
	default:
		return fmt.Errorf("there is no command %q; %s", args[0], usage)
	}
}

// serve answers until ctx ends. It prints the address that it listens on, because the port may be 0.
func serve(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	address := flags.String("address", "", "address to listen on, empty for all")
	port := flags.Int("port", 8080, "TCP port, 0 for any")
	if err := flags.Parse(args); err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(*address, strconv.Itoa(*port)))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%s answers on %s\n", name, listener.Addr())
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) }),
		ReadHeaderTimeout: 10 * time.Second,
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// get prints the body of the answer. Each call opens a new connection, so a Service may choose another pod.
func get(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("get", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 5*time.Second, "of the whole exchange, names included")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New(usage)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, flags.Arg(0), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(out, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", flags.Arg(0), answer.Status)
	}
	return nil
}
