package flag

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Names of the settings of kvm-operator machines. Each name is a flag and, in upper case with underscores, an environment
// variable: the variables are those of vitistack's operator.
const (
	MachinesKubeconfig     = "kubeconfig"
	MachinesNamespace      = "namespace"
	MachinesElection       = "leader-election"
	MachinesInterval       = "reconcile-interval"
	MachinesWorkers        = "max-concurrent-reconciles"
	MachinesMetricsAddress = "metrics-bind-address"
	MachinesMetricsCerts   = "metrics-cert-path"
	MachinesMetricsCert    = "metrics-cert-name"
	MachinesMetricsKey     = "metrics-cert-key"
	MachinesProbeAddress   = "health-probe-bind-address"
	MachinesLogLevel       = "log-level"
	MachinesManagedBy      = "managed-by"
	MachinesTemplatesFile  = "templates-file"
	MachinesStorageClass   = "storage-class-name"
	MachinesAccessMode     = "pvc-access-mode"
	MachinesVolumeMode     = "pvc-volume-mode"
	MachinesCPUModel       = "cpu-model"
	MachinesMACSet         = "mac-set"
	MachinesCNIVersion     = "network-attachment-definition-cni-version"
)

const (
	defaultInterval = 30 * time.Second
	defaultWorkers  = 5
	// formerElection is the flag of vitistack's operator for MachinesElection.
	formerElection = "leader-elect"
)

// RegisterMachines adds the settings of kvm-operator machines to the flags.
func RegisterMachines(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == formerElection {
			name = MachinesElection
		}
		return pflag.NormalizedName(name)
	})
	fs.String(MachinesKubeconfig, "", "`path` of the kubeconfig; empty for the service account of the pod that this runs in")
	fs.String(MachinesNamespace, "", "namespace of the Lease of leader election; empty for the pod's own, or that of the kubeconfig. Machines of all namespaces are handled")
	fs.Bool(MachinesElection, true, "let only one replica reconcile at a time")
	fs.Duration(MachinesInterval, defaultInterval, "how often each Machine is reconciled even if nothing has changed, from 1s to 24h")
	fs.Int(MachinesWorkers, defaultWorkers, "how many Machines are reconciled at a time, from 1 to 100")
	fs.String(MachinesMetricsAddress, ":8080", "`address` of /metrics; 0 for none")
	fs.String(MachinesMetricsCerts, "", "`path` of the directory with the certificate that metrics are served with, by TLS alone; empty for plain HTTP")
	fs.String(MachinesMetricsCert, "tls.crt", "`name` of the file of that directory with the certificate")
	fs.String(MachinesMetricsKey, "tls.key", "`name` of the file of that directory with the key")
	fs.String(MachinesProbeAddress, ":8081", "`address` of /healthz and /readyz; 0 for none")
	fs.String(MachinesLogLevel, "info", "what is logged: error, warn, info or debug")
	RegisterMachineObjects(fs)
}

// RegisterMachineObjects adds those settings of kvm-operator machines to the flags that the objects of Machines depend on,
// which are settings of kvm-operator render, too.
func RegisterMachineObjects(fs *pflag.FlagSet) {
	fs.String(MachinesManagedBy, "kubevirt-operator", "value of the label vitistack.io/managed-by on all objects of Machines")
	fs.String(MachinesTemplatesFile, "", "`path` of a file with templates besides small, medium and large; empty for none")
	fs.String(MachinesStorageClass, "", "StorageClass of disks that name none; empty for the cluster's default class")
	fs.String(MachinesAccessMode, "ReadWriteMany", "access mode of disks that set none, in Machines in the form of vitistack/common: ReadWriteOnce, ReadWriteMany or ReadOnlyMany")
	fs.String(MachinesVolumeMode, "Block", "volume mode of disks that set none, in Machines in the form of vitistack/common: Filesystem or Block")
	fs.String(MachinesCPUModel, "", "CPU `model` of all machines, such as host-passthrough; empty for KubeVirt's default")
	fs.String(MachinesMACSet, "12", "second octet of derived MAC addresses, two hexadecimal `digits`")
	fs.String(MachinesCNIVersion, "1.0.0", "CNI `version` in NetworkAttachmentDefinitions")
}

// MachinesVariable returns the environment variable of a setting of kvm-operator machines.
func MachinesVariable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// LoadMachines sets the settings that were not given as flags from the environment. An empty variable counts as one that
// does not exist. It returns the variables in use by the names of their settings, and the names of those whose values are
// not of the type of the setting.
func LoadMachines(fs *pflag.FlagSet, environment func(string) (string, bool)) (used map[string]string, wrong []string) {
	used = map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		value, ok := environment(MachinesVariable(f.Name))
		// The flags may be another set's, too, which has read the command line. They know that they were given.
		if !ok || value == "" || f.Changed || f.Name == "help" {
			return
		}
		used[f.Name] = value
		if fs.Set(f.Name, value) != nil {
			wrong = append(wrong, f.Name)
		}
	})
	return used, wrong
}
