// Command flannel is flanneld with one backend, VXLAN, and one subnet store, the Kubernetes API. It takes the command
// line of flannel's manifest, reads and writes the same files and consists of flannel's packages. flannel's own main
// cannot be built where the modules of a cloud's client are not available.
//
// https://github.com/flannel-io/flannel/blob/master/Documentation/configuration.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/flannel-io/flannel/pkg/version"
	"k8s.io/klog/v2"
)

func main() {
	flags := flag.NewFlagSet("flanneld", flag.ExitOnError)
	var o options
	o.register(flags)
	showVersion := flags.Bool("version", false, "print version and exit")
	klog.InitFlags(flags)
	_ = flags.Parse(os.Args[1:]) // ExitOnError

	if *showVersion {
		fmt.Fprintln(os.Stderr, version.Version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.validate()
	if err == nil {
		err = run(ctx, o)
	}
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		klog.ErrorS(err, "flanneld ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	klog.InfoS("flanneld ends because it was asked to")
	klog.Flush()
}
