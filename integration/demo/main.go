// Command demo runs the whole product on this machine, with or without KVM: a management cluster with real nodes, the
// operator installed from its chart, and a workload cluster whose nodes are virtual machines:
//
//	go run ./integration/demo check  say whether a demo can be started
//	go run ./integration/demo up     start everything, show what happens, stay until Ctrl-C
//	go run ./integration/demo up -develop
//	                                 also build and replace the operator whenever its sources change
//	go run ./integration/demo vm     the same with one VirtualMachine in place of a workload cluster
//	go run ./integration/demo machines
//	                                 Machines on KubeVirt's control plane and simulated nodes, where no guest boots
//	go run ./integration/demo down   stop a demo that was left behind
//
// It runs in the root of a checkout, as root but for machines, and needs the tools of `make tools`. Everything that it
// creates is in .demo, except processes, namespaces and cgroups. It removes .demo at the end, unless something failed
// and its logs matter.
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
	// A signal ends the context once. Further signals are ignored, so that the cleanup cannot be interrupted.
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
		fmt.Fprintln(flags.Output(), "usage: demo check | up [-exit] [-develop] [-smolvm] [-timeout DURATION] | vm [-exit] [-timeout DURATION] | machines [-exit] [-timeout DURATION] | down")
		flags.PrintDefaults()
	}
	exit := flags.Bool("exit", !term.IsTerminal(int(os.Stdin.Fd())),
		"stop as soon as the workload cluster has done its work, the machine has booted, or Machines were shown (default: when standard input is no terminal)")
	develops := flags.Bool("develop", false, "build and replace the operator whenever its sources change, until Ctrl-C")
	smolVMs := flags.Bool("smolvm", false, "let the hosts run SmolVMs, too")
	timeout := flags.Duration("timeout", 90*time.Minute, "how long the workload cluster may take to do its work, the machine to boot, or Machines to be shown")
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
	case "check":
		return check(state, os.Geteuid())
	case "up":
		why := keep
		switch {
		case *develops:
			why = develop
		case *exit:
			why = prove
		}
		return up(ctx, state, *timeout, why, *smolVMs)
	case "vm":
		return upMachine(ctx, state, *timeout, *exit)
	case "machines":
		return upMachines(ctx, state, *timeout, *exit)
	case "down":
		return down(state)
	default:
		flags.Usage()
		return flag.ErrHelp
	}
}
