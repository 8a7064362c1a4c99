package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmruntime"
)

// exitSettings is the exit code if the agent's settings are invalid.
const exitSettings = 2

const (
	flagServeCommand       = "smolvm-serve-command"
	flagSocket             = "smolvm-api-socket"
	flagCapacityCPUs       = "capacity-cpus"
	flagCapacityMemoryMiB  = "capacity-memory-mib"
	flagCapacityStorageGiB = "capacity-storage-gib"
)

// runtimeVariables maps flags of runtime to the environment variables that set them.
var runtimeVariables = map[string]string{
	flagCapacityCPUs: "CAPACITY_CPUS", flagCapacityMemoryMiB: "CAPACITY_MEMORY_MIB", flagCapacityStorageGiB: "CAPACITY_STORAGE_GIB",
}

func newRuntime() *cobra.Command {
	c := &cobra.Command{
		Use:   "runtime",
		Short: "Run the runtime of SmolVMs on a node",
		Long: `Run the agent of a node that runs SmolVMs: start smolvm and keep it running, let the controller reach its API over HTTPS, and report
the node as a SmolVMNode.

The environment says where the agent is: NODE_NAME, POD_NAME, POD_NAMESPACE and POD_IP. SMOLVM_RUNTIME_TOKEN is a token for clients
and SMOLVM_RUNTIME_VERSION the version that is reported. The API server is the pod's own, or that of the file in KUBECONFIG.`,
		Example: `  # on a machine that can reach a cluster, as node-1, for clients with the token in a file
  NODE_NAME=node-1 POD_IP=192.0.2.7 KUBECONFIG=$HOME/.kube/config kvm-operator runtime --token-file=token \
    --state-directory=$PWD/state --smolvm-api-socket=$PWD/run/smolvm.sock --allow-emulation \
    --smolvm-serve-command="smolvm serve start --listen unix://$PWD/run/smolvm.sock --state=$PWD/state --allow-emulation"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runRuntime(c) },
	}
	registerRuntime(c.Flags())
	return c
}

func registerRuntime(fs *pflag.FlagSet) {
	fs.Bool("allow-emulation", false, "report a node without KVM as one that runs machines, by emulation")
	fs.String("bind-address", smolvmruntime.DefaultBindAddress, "address and port of the node API")
	fs.Int32(flagCapacityCPUs, 0, "processors that machines may have; 0 means all that Kubernetes may give to pods")
	fs.Int64(flagCapacityMemoryMiB, 0, "memory in MiB that machines may have; 0 means all that Kubernetes may give to pods")
	fs.Int64(flagCapacityStorageGiB, 0, "room in GiB that machines may have in the state directory; 0 means all")
	fs.String("controller-service-account", "", "ServiceAccount of the controller as namespace/name; tokens of it are accepted if the API server confirms them")
	fs.String("daemonset", smolvmruntime.DefaultDaemonSet, "name of the agent's DaemonSet; when it is deleted, machines are powered down")
	fs.Bool("expose-guest-streams", false, "let clients with a token follow commands and consoles of guests, which the controller does not need")
	fs.Duration("hang-timeout", smolvmruntime.DefaultHangTimeout, "how long smolvm may be silent before it is restarted; 0 never restarts it")
	fs.Bool("insecure-no-auth", false, "serve clients without a token")
	fs.String("metrics-bind-address", smolvmruntime.DefaultMetricsAddress, "address and port of metrics, without TLS and tokens; empty for none")
	fs.String("orphan-cleanup-policy", string(smolvmruntime.DefaultOrphans), "what happens to machines whose SmolVM is gone: none, report or delete. The last two need the right to read all SmolVMs")
	fs.Duration("report-interval", smolvmruntime.DefaultReportInterval, "time between two reports without news, at most 1m30s")
	fs.String(flagSocket, smolvmruntime.DefaultSocket, "socket of smolvm")
	fs.String(flagServeCommand, "smolvm serve start --listen unix://"+smolvmruntime.DefaultSocket, "command that starts smolvm, split at white space; empty if another program starts it. Its default follows --smolvm-api-socket")
	fs.String("state-directory", smolvmruntime.DefaultState, "directory that smolvm and the agent keep their state in")
	fs.String("tls-cert-file", "", "file with the certificate of the node API; empty means a self-signed one")
	fs.String("tls-private-key-file", "", "file with the key of that certificate")
	fs.String("token-file", "", "file with the token of clients; it may change while the agent runs")
	fs.String("token-review-audience", smolvmruntime.DefaultAudience, "audience that tokens of the controller's ServiceAccount must have")
	for name, variable := range runtimeVariables {
		fs.Lookup(name).Usage += " (" + variable + ")"
	}
}

func runRuntime(c *cobra.Command) error {
	settings, err := loadRuntime(c.Flags(), os.LookupEnv)
	if err == nil {
		err = settings.Validate()
	}
	if err != nil {
		return &runner.ExitError{Code: exitSettings, Message: err.Error()}
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	config, err := runtimeRESTConfig(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	if err != nil {
		return err
	}
	api, err := smolvmruntime.NewClient(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if os.Getpid() == 1 {
		go runner.ReapOrphans(c.Context())
	}
	agent, err := smolvmruntime.New(settings, api, c.ErrOrStderr(), log)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// runtimeRESTConfig finds the API server: that of a kubeconfig, or the pod's own.
func runtimeRESTConfig(kubeconfig string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = "smolvm-runtime/" + project.Version()
	return config, nil
}

// loadRuntime reads flags and the environment. The error names everything that cannot be read.
func loadRuntime(fs *pflag.FlagSet, environment func(string) (string, bool)) (smolvmruntime.Settings, error) {
	var errs []error
	for name, variable := range runtimeVariables {
		// The downward API gives 0 if the container requests nothing.
		if value, ok := environment(variable); ok && value != "" && !fs.Changed(name) {
			if err := fs.Set(name, value); err != nil {
				errs = append(errs, fmt.Errorf("the variable %s: %w", variable, err))
			}
		}
	}
	variable := func(name, otherwise string) string {
		if value, _ := environment(name); value != "" {
			return value
		}
		return otherwise
	}
	r := reader{fs}
	settings := smolvmruntime.Settings{
		Node: variable("NODE_NAME", ""), PodName: variable("POD_NAME", ""), PodIP: variable("POD_IP", ""),
		PodNamespace: variable("POD_NAMESPACE", smolvmruntime.DefaultNamespace), Version: variable("SMOLVM_RUNTIME_VERSION", smolvmruntime.DefaultVersion),
		Token: strings.TrimSpace(variable("SMOLVM_RUNTIME_TOKEN", "")), TokenFile: r.text("token-file"),
		DaemonSet: r.text("daemonset"), BindAddress: r.text("bind-address"), MetricsAddress: r.text("metrics-bind-address"),
		Socket: r.text(flagSocket), Command: strings.Fields(r.text(flagServeCommand)), HangTimeout: r.duration("hang-timeout"), State: r.text("state-directory"),
		CertFile: r.text("tls-cert-file"), KeyFile: r.text("tls-private-key-file"),
		Audience: r.text("token-review-audience"), Controller: r.text("controller-service-account"), InsecureNoAuth: r.yes("insecure-no-auth"),
		ExposeGuestStreams: r.yes("expose-guest-streams"),
		AllowEmulation:     r.yes("allow-emulation"), ReportInterval: r.duration("report-interval"), Orphans: smolvmruntime.OrphanPolicy(r.text("orphan-cleanup-policy")),
	}
	if !fs.Changed(flagServeCommand) {
		settings.Command = []string{"smolvm", "serve", "start", "--listen", "unix://" + settings.Socket}
	}
	var err error
	settings.CapacityCPUs, err = fs.GetInt32(flagCapacityCPUs)
	errs = append(errs, err)
	settings.CapacityMemoryMiB, err = fs.GetInt64(flagCapacityMemoryMiB)
	errs = append(errs, err)
	settings.CapacityStorageGiB, err = fs.GetInt64(flagCapacityStorageGiB)
	return settings, errors.Join(append(errs, err)...)
}
