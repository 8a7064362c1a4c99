package cmd

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

const (
	// machinesProgram is the name of the program that is the command machines.
	machinesProgram = "kubevirt-operator"
	// machinesLease is the name of the Lease of leader election. The chart grants it by name.
	machinesLease = "kubevirt-operator"
	// machinesLeaseHolds is how long no other replica takes over after the leader's host fails.
	machinesLeaseHolds = 15 * time.Second
)

// Called returns the command for the name that the program was called by. By the name kubevirt-operator it is
// kvm-operator machines.
func Called(program string) *cobra.Command {
	if strings.TrimSuffix(filepath.Base(program), ".exe") != machinesProgram {
		return New()
	}
	c := newMachines()
	c.Use, c.SilenceUsage, c.SilenceErrors = machinesProgram, true, true
	c.AddCommand(newVersion())
	return c
}

func newMachines() *cobra.Command {
	c := &cobra.Command{
		Use:   "machines",
		Short: "Run the operator for Machines of vitistack.io, which KubeVirt runs",
		Long: `Run the operator for Machines and NetworkConfigurations of vitistack.io until it gets SIGTERM or SIGINT. KubeVirt may be
installed later. The program does the same when it is called by the name kubevirt-operator.

Every setting is a flag and a variable of the environment: the flag --reconcile-interval is the variable RECONCILE_INTERVAL.
A flag overrides the environment.`,
		Example: `  # on a machine that can reach the cluster
  KUBECONFIG=$HOME/.kube/config kvm-operator machines --namespace=default

  # more Machines at a time, with metrics on this host alone
  kvm-operator machines --kubeconfig=$HOME/.kube/config --max-concurrent-reconciles=10 --metrics-bind-address=127.0.0.1:8080

  # in a pod, which is what the chart kubevirt-operator runs
  LEADER_ELECTION=true RECONCILE_INTERVAL=1m kubevirt-operator`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runMachines(c) },
	}
	flag.RegisterMachines(c.Flags())
	c.SetFlagErrorFunc(wrongFlag)
	return c
}

func runMachines(c *cobra.Command) error {
	limitMemory(os.LookupEnv)
	if err := loadMachines(c.Flags(), os.LookupEnv); err != nil {
		return err
	}
	r := reader{c.Flags()}
	settings, err := machinesSettings(r)
	if err != nil {
		return err
	}
	at, err := machinesConnection(r.text(flag.MachinesKubeconfig))
	if err != nil {
		return err
	}
	logger := jsonlog.New(c.OutOrStdout(), r.text(flag.MachinesLogLevel))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger.WithName("client"))
	config := machines.Config{
		REST: at.rest, Settings: settings, Logger: logger,
		Interval: r.duration(flag.MachinesInterval), Workers: r.number(flag.MachinesWorkers),
	}
	if r.yes(flag.MachinesElection) {
		config.Election = election.Config{
			Namespace: cmp.Or(r.text(flag.MachinesNamespace), at.namespace), Name: machinesLease, Holds: machinesLeaseHolds,
		}
	}
	logger.Info("starting", "version", project.Version(), "apiServer", at.rest.Host, "lease", config.Election.Namespace)
	s, err := machines.New(c.Context(), config)
	if err != nil {
		return err
	}
	return serveMachines(c.Context(), s, r)
}

// serveMachines runs the operator and its servers until the process gets SIGTERM or SIGINT.
func serveMachines(ctx context.Context, s *machines.Service, r reader) error {
	own := prometheus.NewRegistry()
	if err := own.Register(s.Metrics()); err != nil {
		return err
	}
	certificate, err := machinesCertificate(r)
	if err != nil {
		return err
	}
	servers, err := machines.Listen(machines.Serving{
		Metrics: r.text(flag.MachinesMetricsAddress), Probes: r.text(flag.MachinesProbeAddress),
		Certificate: certificate, Logger: ctrl.Log.WithName("http"),
		// Those of controller-runtime and of the engine are in the registry of the process.
		Gatherer: prometheus.Gatherers{own, metrics.Registry},
		Unready: func() string {
			ready, why := s.Ready()
			if ready {
				return ""
			}
			return why
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	served := make(chan error, 1)
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer stop() // an operator that cannot tell how it is ends
		served <- servers.Serve(serving)
	}()
	// Probes are answered while passes in progress end.
	err = s.Run(ctx)
	end()
	return errors.Join(err, <-served)
}
