package runner

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmrunner"
)

// vmVariables maps flags of runner vm to the environment variables that set them.
var vmVariables = map[string]string{
	"allow-emulation": "ALLOW_EMULATION", "canary-kernel": "CANARY_KERNEL", "machine": vmconfig.Variable,
}

func newVM() *cobra.Command {
	c := &cobra.Command{
		Use:   "vm",
		Short: "Run a virtual machine; PID 1 of the pod of a VirtualMachine",
		Long: `Run a virtual machine that is declared as one: lock and open its disks, find its firmware, make the disk for cloud-init, insert
its CDs, start QEMU, supervise it, and shut the guest down after SIGTERM.

The part of the machine that is fixed until QEMU ends is the value of MACHINE, as JSON. The part that can change is in a file. When
the guest shuts itself down, the runner ends, and the next runner in the same pod does not start the machine at once.`,
		Example: `  # a machine that boots the file system-disk of this directory, and is emulated
  MACHINE='{"version":1,"name":"try","firmware":"bios","maximumCpus":2,"maximumRam":2147483648,
    "network":[{"type":"user"}],"drives":[{"type":"raw","name":"system-disk","bootindex":0}]}' \
    kvm-operator runner vm --devices=. --config=try.json --data=try --state=try --run=try/run --allow-emulation

  # its console, from another terminal
  kvm-operator runner console --run=try/run`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runVM(c) },
	}
	registerVM(c.Flags())
	return c
}

func registerVM(fs *pflag.FlagSet) {
	fs.String("canary-kernel", "", "kernel with which a canary guest proves that KVM works; empty means that KVM works if its device opens")
	fs.String("cloud-init", vmconfig.CloudInitDirectory, "directory with the files for cloud-init")
	fs.String("config", vmconfig.LiveFile, "file with the part of the machine that can change; without it, the guest has all CPUs and memory")
	fs.String("data", vmconfig.DataDirectory, "directory for data that survives the pod: the firmware's variables and the state of the TPM")
	fs.String("display", vmconfig.DisplayDirectory, "directory with the files of the display's Secret")
	fs.String("devices", "/dev", "directory with the disks, each under its name")
	fs.String("image-repository", vmconfig.ImageRepository, "directory with the images of CDs")
	fs.String("machine", "", "the machine, as JSON")
	fs.String("dns-servers", "", "addresses for the guest of a network of type pod, separated by commas; empty means those of /etc/resolv.conf")
	fs.String("search-domains", "", "domains for the guest of a network of type pod, separated by commas; empty means those of /etc/resolv.conf")
	fs.Duration("parked-for", vmrunner.ParkedFor, "how long a machine whose guest shut itself down is parked before it is started again")
	fs.String("state", vmconfig.StateDirectory, "directory that survives the runner but not the pod")
	registerKeeper(fs)
	registerTerminationLog(fs)
	nameVariables(fs, vmVariables)
}

func runVM(c *cobra.Command) error {
	settings, err := loadVM(c.Flags(), os.LookupEnv)
	if err != nil {
		return refuse(settings.TerminationLog, err)
	}
	return keep(c, func(log *slog.Logger, console, messages io.Writer) machine {
		return vmrunner.New(settings, log, console, messages)
	})
}

// loadVM reads flags and, where a flag is not given, the environment. The error names everything that is wrong.
func loadVM(fs *pflag.FlagSet, environment func(string) (string, bool)) (vmrunner.Settings, error) {
	r := newReader(fs, vmVariables, environment)
	settings := vmrunner.Settings{
		Version: project.Version(),
		Config:  r.text("config"), CloudInit: r.text("cloud-init"), Display: r.text("display"), Data: r.text("data"), Images: r.text("image-repository"), Devices: r.text("devices"),
		State: r.text("state"), Kernel: r.text("canary-kernel"), AllowEmulation: r.yes("allow-emulation"), ParkedFor: r.duration("parked-for"), DNSServers: r.dnsServers(), SearchDomains: r.searchDomains(),
	}
	var err error
	if text := r.text("machine"); text == "" {
		err = fmt.Errorf("there is no machine: set --machine (%s)", vmconfig.Variable)
	} else {
		settings.Machine, err = vmconfig.Decode(text)
	}
	settings.Settings = r.keeper(settings.Machine.Name)
	if err = errors.Join(append(r.errs, err)...); err != nil {
		return settings, err
	}
	return settings, settings.Validate()
}
