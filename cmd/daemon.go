package cmd

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/service"
)

func newDaemon() *cobra.Command {
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run the operator",
		Long: `Run the operator until it gets SIGTERM or SIGINT.

Every setting is a flag, a key of a configuration file and a variable of the environment: the flag
--service.registry.domain is the key service.registry.domain and the variable SERVICE_REGISTRY_DOMAIN.
A flag overrides the environment, which overrides files; later files override earlier ones.`,
		Example: `  # on a machine that can reach the management cluster
  kvm-operator daemon --service.kubernetes.kubeconfigpath=$HOME/.kube/config --service.leaderelection.namespace=default

  # in a pod, with settings from mounted files
  kvm-operator daemon --service.kubernetes.incluster --config.dirs=/var/run/kvm-operator/configmap --config.files=config`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runDaemon(c) },
	}
	flag.Register(c.Flags(), runnerImage(), vmRunnerImage())
	return c
}

func runDaemon(c *cobra.Command) error {
	limitMemory(os.LookupEnv)
	fs := c.Flags()
	if err := flag.Load(fs, os.LookupEnv); err != nil {
		return err
	}
	r := reader{fs}
	if err := validate(fs, checks, fileChecks); err != nil {
		return err
	}
	logger := newLogger(c.OutOrStdout(), r.text(flag.ServerLogFormat), r.text(flag.ServerLogLevel))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger.WithName("client"))
	selector, err := labels.Parse(r.text(flag.CRDLabelSelector))
	if err != nil {
		return microerror.Mask(err)
	}
	config, err := restConfig(fs)
	if err != nil {
		return err
	}
	settings := clusterSettings(fs)
	if err := settings.Validate(); err != nil {
		return err
	}
	s, err := service.New(c.Context(), service.Config{
		REST: config, Settings: settings, Selector: selector,
		ListenAddress: r.text(flag.ServerListenAddress), MetricsAddress: r.text(flag.ServerListenMetricsAddress),
		CertFile: r.text(flag.ServerTLSCrtFile), KeyFile: r.text(flag.ServerTLSKeyFile),
		LogAccess: r.yes(flag.ServerLogAccess), Debug: r.yes(flag.ServerEnableDebugServer),
		MachinesOnly:    !r.yes(flag.WorkloadConnect),
		DrainTimeout:    r.duration(flag.DrainTimeout),
		Vault:           vaultConfig(r),
		VirtualMachines: servedMachines(r),
		SmolVMs:         servedSmolVMs(r),
		NoClusters:      !r.runs(flag.ControllerKVMConfig),
		Election:        electionConfig(r),
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	return s.Run(ctx)
}

// newLogger writes lines of the format, "json" or "text", at the given level and above. An error says what it is about.
// Stack traces are omitted because they would always be those of the queue.
func newLogger(w io.Writer, format, level string) logr.Logger {
	encoder := zap.JSONEncoder(utcTimes)
	if format == logText {
		encoder = zap.ConsoleEncoder(utcTimes)
	}
	return zap.New(zap.WriteTo(w), zap.StacktraceLevel(zapcore.DPanicLevel), zap.Level(logLevels[level]), encoder)
}

// The formats of the log.
const logJSON, logText = "json", "text"

// logLevels maps the values of the setting to log levels.
var logLevels = map[string]zapcore.Level{"error": zapcore.ErrorLevel, "info": zapcore.InfoLevel, "debug": zapcore.DebugLevel}

// utcTimes writes times in RFC 3339 format, in UTC.
func utcTimes(c *zapcore.EncoderConfig) {
	c.EncodeTime = func(at time.Time, out zapcore.PrimitiveArrayEncoder) {
		out.AppendString(at.UTC().Format(time.RFC3339Nano))
	}
}

// electionConfig returns the Lease that the operator has to hold. The zero value means no leader election.
func electionConfig(r reader) service.Election {
	if !r.yes(flag.LeaderElectionEnabled) {
		return service.Election{}
	}
	return service.Election{
		Namespace: r.text(flag.LeaderElectionNamespace), Name: r.text(flag.LeaderElectionName), Holds: r.duration(flag.LeaderElectionDuration),
	}
}

// restConfig finds the management cluster: the pod's own, a kubeconfig, or an address with certificate files.
func restConfig(fs *pflag.FlagSet) (*rest.Config, error) {
	r := reader{fs}
	if r.yes(flag.KubernetesInCluster) {
		config, err := rest.InClusterConfig()
		return config, microerror.Mask(err)
	}
	if content := r.text(flag.KubernetesKubeconfig); content != "" {
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(content))
		return config, microerror.Mask(err)
	}
	if path := r.text(flag.KubernetesKubeconfigPath); path != "" {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		return config, microerror.Mask(err)
	}
	config := &rest.Config{Host: r.text(flag.KubernetesAddress)}
	if strings.HasPrefix(config.Host, "https://") {
		config.TLSClientConfig = rest.TLSClientConfig{
			CAFile: r.text(flag.KubernetesTLSCAFile), CertFile: r.text(flag.KubernetesTLSCrtFile), KeyFile: r.text(flag.KubernetesTLSKeyFile),
		}
	}
	return config, nil
}
