package cmd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Limits of settings of kvm-operator machines.
const (
	leastInterval, mostInterval = time.Second, 24 * time.Hour
	mostWorkers                 = 100
)

// rule says what a setting of kvm-operator machines has to be. All values are right for a rule without ok, if they are of
// the type of the setting.
type rule struct {
	must string
	ok   func(r reader, name string) bool
}

// machinesRules are the rules by setting. The file of templates and the kubeconfig are checked when they are read.
var machinesRules = map[string]rule{
	flag.MachinesNamespace: {"the name of a namespace, such as kubevirt-operator-system", optional(isLabel)},
	flag.MachinesElection:  {must: "true or false"},
	flag.MachinesInterval: {"a time with its unit from 1s to 24h, such as 30s", func(r reader, name string) bool {
		return r.duration(name) >= leastInterval && r.duration(name) <= mostInterval
	}},
	flag.MachinesWorkers: {"a whole number from 1 to 100, such as 5", func(r reader, name string) bool {
		return r.number(name) >= 1 && r.number(name) <= mostWorkers
	}},
	flag.MachinesMetricsAddress: {"an address with a port, such as :8080 or 127.0.0.1:8080, or 0 for none", isText(isBindAddress)},
	flag.MachinesMetricsCert:    {"the name of a file, such as tls.crt", isText(isFileName)},
	flag.MachinesMetricsKey:     {"the name of a file, such as tls.key", isText(isFileName)},
	flag.MachinesProbeAddress:   {"an address with a port, such as :8081 or 127.0.0.1:8081, or 0 for none", isText(isBindAddress)},
	flag.MachinesLogLevel: {"one of " + strings.Join(jsonlog.Levels(), ", "), isText(func(s string) bool {
		return slices.Contains(jsonlog.Levels(), s)
	})},
	flag.MachinesManagedBy: {"the value of a label, such as kubevirt-operator", isText(func(s string) bool {
		return s != "" && len(validation.IsValidLabelValue(s)) == 0
	})},
	flag.MachinesStorageClass: {"the name of a StorageClass, such as fast", optional(isDomain)},
	flag.MachinesAccessMode:   {"one of ReadWriteOnce, ReadWriteMany, ReadOnlyMany", isText(among(accessModes))},
	flag.MachinesVolumeMode:   {"Filesystem or Block", isText(among(volumeModes))},
	flag.MachinesCPUModel:     {"a CPU model of KubeVirt, such as host-model or host-passthrough", optional(cpuModel.MatchString)},
	flag.MachinesMACSet:       {"two hexadecimal digits, such as 12", isText(func(s string) bool { _, err := macSet(s); return err == nil })},
	flag.MachinesCNIVersion:   {"a version of the CNI specification, such as 1.0.0", isText(cniVersion.MatchString)},
}

var (
	accessModes = []string{"ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"}
	volumeModes = []string{"Filesystem", "Block"}
	cpuModel    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	cniVersion  = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$`)
)

func isText(ok func(string) bool) func(reader, string) bool {
	return func(r reader, name string) bool { return ok(r.text(name)) }
}

func optional(ok func(string) bool) func(reader, string) bool {
	return isText(func(s string) bool { return s == "" || ok(s) })
}

func among(all []string) func(string) bool {
	return func(s string) bool { return slices.Contains(all, s) }
}

func isFileName(s string) bool { return s == filepath.Base(s) }

// isBindAddress accepts what net.Listen takes, with a port that is a number, and 0.
func isBindAddress(s string) bool {
	if s == "0" {
		return true
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" || !portOK(port) {
		return false
	}
	return host == "" || net.ParseIP(host) != nil || isDomain(host)
}

// macSet reads the second octet of MAC addresses. vitistack's operator took it with 0x, too.
func macSet(s string) (byte, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 8)
	return byte(n), err
}

// loadMachines sets the settings from the environment where flags do not, and returns one sentence for each wrong one.
func loadMachines(fs *pflag.FlagSet, environment func(string) (string, bool)) error {
	used, mistyped := flag.LoadMachines(fs, environment)
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		r := machinesRules[f.Name]
		if slices.Contains(mistyped, f.Name) || r.ok != nil && !r.ok(reader{fs}, f.Name) {
			errs = append(errs, wrongSetting(f.Name, used, f.Value.String()))
		}
	})
	return errors.Join(errs...)
}

// wrongSetting says where a value came from, what it is, and what it has to be.
func wrongSetting(name string, used map[string]string, value string) error {
	source := "--" + name
	if text, ok := used[name]; ok {
		source, value = flag.MachinesVariable(name), text
	}
	return fmt.Errorf("%s is %q and has to be %s", source, value, machinesRules[name].must)
}

// wrongFlag says the same of a flag whose value is not of its type.
func wrongFlag(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	return wrongSetting(invalid.GetFlag().Name, nil, invalid.GetValue())
}

// machinesSettings returns the settings of Machines, which loadMachines has accepted.
func machinesSettings(r reader) (vitistack.Settings, error) {
	set, err := macSet(r.text(flag.MachinesMACSet))
	if err != nil {
		return vitistack.Settings{}, err
	}
	s := vitistack.Settings{
		ManagedBy: r.text(flag.MachinesManagedBy), StorageClass: r.text(flag.MachinesStorageClass),
		AccessMode: r.text(flag.MachinesAccessMode), VolumeMode: r.text(flag.MachinesVolumeMode),
		CPUModel: r.text(flag.MachinesCPUModel), MACSet: set, CNIVersion: r.text(flag.MachinesCNIVersion),
	}
	path := r.text(flag.MachinesTemplatesFile)
	if path == "" {
		return s, nil
	}
	text, err := readTemplates(path)
	if err == nil {
		s.Templates, err = parseTemplates(text)
	}
	if err != nil {
		return s, fmt.Errorf("the file of templates %s (--%s or %s): %w", path, flag.MachinesTemplatesFile, flag.MachinesVariable(flag.MachinesTemplatesFile), err)
	}
	return s, nil
}

// mostTemplates is the maximum size of the file of templates in bytes, more than a ConfigMap may have.
const mostTemplates = 2 << 20

func readTemplates(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("has to be one that can be read: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > mostTemplates {
		return nil, fmt.Errorf("has to be a file of at most %d bytes", mostTemplates)
	}
	return os.ReadFile(path)
}
