// Command demo shows the operator at work on a real management cluster with simulated nodes, on any Linux machine and
// without virtualization:
//
//	go run ./integration/demo up     start everything, show what happens, stay until Ctrl-C
//	go run ./integration/demo down   stop a demo that was left behind
//
// It runs in the root of a checkout and needs the tools of `make tools`. Everything it makes is in .demo, besides the
// operator's executable bin/kvm-operator; .demo is removed at the end, unless something failed and its logs matter.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
)

func main() {
	// A signal ends the context once; further ones are swallowed, so that nobody can interrupt the cleaning up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: demo up [-exit] [-timeout DURATION]\n       demo down")
		flags.PrintDefaults()
	}
	exit := flags.Bool("exit", !term.IsTerminal(int(os.Stdin.Fd())),
		"stop as soon as the node pods are Ready (default: when standard input is no terminal)")
	timeout := flags.Duration("timeout", 5*time.Minute, "how long the node pods may take to become Ready")
	if len(args) == 0 {
		flags.Usage()
		return flag.ErrHelp
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	state, err := openState()
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, state, *timeout, *exit)
	case "down":
		return down(state)
	default:
		flags.Usage()
		return flag.ErrHelp
	}
}
