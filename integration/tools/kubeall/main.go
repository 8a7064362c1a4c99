// Command kubeall is etcd and its tools, the Kubernetes control plane, the node components and kubectl in one binary.
// It runs the component named by the base name of argv[0] (make a symlink per component) or by the first argument.
//
// It exists because the tests may run where no prebuilt Kubernetes binary can be downloaded, and because one binary of
// 141 MB fits a guest image while seven separate ones of 505 MB do not.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps a component's name to the function that runs it until it ends. args[0] is the component's name.
var components = map[string]func(args []string) int{
	"etcd":    func(args []string) int { etcdmain.Main(args); return 0 },
	"etcdctl": func([]string) int { ctlv3.MustStart(); return 0 },
	"etcdutl": func([]string) int {
		// The command itself is in a package that cannot be imported.
		c := &cobra.Command{Use: "etcdutl"}
		c.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "format of what is printed")
		c.AddCommand(etcdutl.NewSnapshotCommand())
		if err := c.Execute(); err != nil {
			return 1
		}
		return 0
	},
	"kubectl": func([]string) int {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		return 0
	},
	"kube-apiserver":          serve(apiserver.NewAPIServerCommand),
	"kube-controller-manager": serve(controllermanager.NewControllerManagerCommand),
	"kube-proxy":              serve(proxy.NewProxyCommand),
	"kube-scheduler":          serve(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 serve(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func serve(command func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(command()) }
}

func main() {
	args := os.Args
	args[0] = filepath.Base(args[0])
	run, ok := components[args[0]]
	if !ok && len(args) > 1 {
		args = args[1:]
		run, ok = components[args[0]]
	}
	if !ok {
		names := make([]string, 0, len(components))
		for name := range components {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: kubeall COMPONENT [FLAG ...]\ncomponents: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Args = args
	os.Exit(run(args))
}
