package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/resolvconf"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// variables maps flags to the environment variables that set them. The names are those of the original operator's
// runner where it had the setting.
var variables = map[string]string{
	"acceleration": "ACCELERATION", "allow-emulation": "ALLOW_EMULATION", "nested-virtualization": "NESTED_VIRTUALIZATION",
	"image-directories": "IMAGE_DIRECTORIES", "boot-data": "CLOUD_CONFIG_PATH", "private-boot-data": "CLOUD_CONFIG_PRIVATE_PATH",
	"api-port": "API_PORT", "cpus": "CORES", "dns-servers": "DNS_SERVERS", "etcd": "ETCD_DATA_PATH", "etcd-disk": "ETCD_DISK", "flatcar-channel": "FLATCAR_CHANNEL",
	"flatcar-mirror": "FLATCAR_MIRROR", "flatcar-version": "FLATCAR_VERSION", "foreign-sources": "FOREIGN_SOURCES", "hold-timeout": "HOLD_TIMEOUT",
	"network": "NETWORK", "ports": "PORTS",
	"image": "GUEST_IMAGE", "max-image-file": "MAX_IMAGE_FILE", "memory": "MEMORY", "name": "HOSTNAME", "ntp-servers": "NTP_SERVERS",
	"powerdown-timeout": "POWERDOWN_TIMEOUT", "search-domains": "SEARCH_DOMAINS", "shares": "HOST_DATA_VOLUME_PATHS", "signing-keys": "SIGNING_KEYS",
}

// diskVariables holds the variables for the sizes of a node's disks, with their serial numbers, in the order in which
// the guest sees them.
var diskVariables = []struct{ variable, serial string }{
	{"DISK_OS", noderunner.SerialOS}, {"DISK_DOCKER", "dockerfs"}, {"DISK_KUBELET", "kubeletfs"},
}

// registerImage registers the flags of commands that get an image.
func registerImage(fs *pflag.FlagSet) {
	fs.String("flatcar-channel", "stable", "channel of the Flatcar release")
	fs.String("flatcar-mirror", osimage.FlatcarMirror, "where Flatcar releases are, with {channel} and {version} in it")
	fs.String("flatcar-version", "", "Flatcar release to boot when there is no --image")
	fs.String("image", "", "operating system to boot, as JSON: what spec.guestImage of a KVMConfig says")
	fs.String("image-directories", "", "directories below which file URLs of the image may lead, separated by commas; / allows all")
	fs.String("images", "/usr/code/images", "directory with the cache of images, shared by all machines of a host; read-only where the image is in it")
	fs.String("max-image-file", "8G", "how large each file of the image may be; empty means as large as it is")
	fs.String("signing-keys", "", "file with the OpenPGP keys that sign images; empty means Flatcar's")
	registerTerminationLog(fs)
}

func registerTerminationLog(fs *pflag.FlagSet) {
	fs.String("termination-log", "/dev/termination-log", "file for the reason why the runner ended; empty for none")
}

// registerKeeper registers the flags of machines of all kinds.
func registerKeeper(fs *pflag.FlagSet) {
	t := keeper.DefaultTimeouts
	fs.Bool("allow-emulation", false, "let the guest be emulated in software where KVM does not work; service.machine.allowemulation of the operator")
	fs.Duration("lock-timeout", t.Lock, "how long to wait for a disk that another machine still uses, such as that of a pod being replaced")
	fs.Duration("monitor-timeout", t.Monitor, "how long QEMU may be unresponsive before it is killed")
	fs.Duration("powerdown-timeout", t.Powerdown, "how long the guest may take to shut down")
	fs.String("qemu", "qemu-system-x86_64", "QEMU, by name or path")
	fs.Int("qemu-user", keeper.QEMUUser, "user and group id that QEMU runs as; 0 means the runner's own, as does any id if the runner is not root")
	fs.Duration("quit-timeout", t.Quit, "how long QEMU may take to quit when the guest did not shut down")
	fs.Duration("start-timeout", t.Start, "how long QEMU may take until it answers")
}

// nameVariables adds the variable that sets a flag to the usage of the flag.
func nameVariables(fs *pflag.FlagSet, variables map[string]string) {
	for name, variable := range variables {
		if f := fs.Lookup(name); f != nil {
			f.Usage += " (" + variable + ")"
		}
	}
}

func register(fs *pflag.FlagSet) {
	t := keeper.DefaultTimeouts
	fs.String("acceleration", "auto", "auto, kvm or tcg; auto is kvm where a canary guest proves that it works")
	fs.Bool("nested-virtualization", false, "let the guest run its own virtual machines on KVM")
	fs.Int("api-port", 0, "port of a master's API server for /readyz; 0 disables the check")
	fs.String("boot-data", "", "file with boot data: base64 of gzip of an Ignition config")
	fs.Duration("boot-timeout", t.Boot, "how long the guest may take until it writes to a disk or sends a packet before its machine is reset; 0 never resets it")
	fs.String("private-boot-data", "", "file with its second half, which holds what is secret")
	fs.Int("cpus", 1, "processors of the guest")
	fs.StringArray("disk", nil, "disk of the guest as <serial>:<size>, such as dockerfs:50G; may repeat. A disk named rootfs is\nformatted before the first start (DISK_OS, DISK_DOCKER, DISK_KUBELET)")
	fs.String("dns-servers", "", "addresses for the guest, separated by commas; empty means those of /etc/resolv.conf")
	fs.String("etcd", "", "directory or block device with etcd's data; the guest sees it as etcdshare")
	fs.String("etcd-disk", "", "size of a disk that is made for etcd's data while its directory is empty, such as 12G; empty shares the directory")
	fs.Bool("foreign-sources", false, "let the guest send with addresses that are not its own")
	fs.Int("health-port", 10248, "port of the guest's kubelet for /healthz; 0 disables the check")
	fs.Duration("hold-timeout", t.Hold, "how long a machine is kept running after SIGTERM unless it is released (runner release)")
	fs.String("machine", "q35", "QEMU's machine type")
	fs.String("memory", "1024M", "memory of the guest in M or G (powers of 1024)")
	fs.String("name", "", "host name of the guest")
	fs.String("network", noderunner.NetworkPod, "pod gives the pod's network to the guest; proxy forwards its connections from the pod's address, without privileges;\nuser puts it behind QEMU's address translation")
	fs.String("ntp-servers", "", "time servers for the guest, separated by commas")
	fs.String("ports", "", "ports of a guest on the network proxy that others reach, as <protocol>:<number>, separated by commas")
	fs.StringArray("qemu-arg", nil, "further argument of QEMU; may repeat")
	fs.String("shares", "", "directories for the guest as <tag>:<path>, separated by commas; it mounts them over 9p")
	fs.String("search-domains", "", "domains for the guest, separated by commas; empty means those of /etc/resolv.conf")
	fs.String("state", "/usr/code/rootfs", "directory with disks and other data that survives a restart of the runner")
	registerKeeper(fs)
	registerImage(fs)
	nameVariables(fs, variables)
}

// load reads flags and, where a flag is not given, the environment. The error names everything that is wrong.
func load(fs *pflag.FlagSet, environment func(string) (string, bool)) (noderunner.Settings, error) {
	r := newReader(fs, variables, environment)
	settings := r.settings(environment)
	return settings, errors.Join(append(r.errs, settings.Validate())...)
}

// loadImage does the same for a command that gets an image. The second result is the file for the termination message.
func loadImage(fs *pflag.FlagSet, environment func(string) (string, bool)) (osimage.Source, string, error) {
	r := newReader(fs, variables, environment)
	settings := r.source()
	return settings, r.terminationLog(), errors.Join(r.errs...)
}

func newReader(fs *pflag.FlagSet, variables map[string]string, environment func(string) (string, bool)) *reader {
	r := &reader{fs: fs, variables: variables}
	for name, variable := range variables {
		value, ok := environment(variable)
		if fs.Lookup(name) == nil || !ok || value == "" || fs.Changed(name) {
			continue
		}
		if err := fs.Set(name, value); err != nil {
			r.errs = append(r.errs, fmt.Errorf("variable %s: %w", variable, err))
		}
	}
	return r
}

// reader reads flags and collects what is wrong with them.
type reader struct {
	fs *pflag.FlagSet
	// variables maps flags to the environment variables that set them.
	variables map[string]string
	errs      []error
}

// keeper reads the flags of machines of all kinds.
func (r *reader) keeper(name string) keeper.Settings {
	return keeper.Settings{
		Name: name, Run: r.text("run"), QEMU: r.text("qemu"), QEMUUser: r.number("qemu-user"), TerminationLog: r.terminationLog(),
		Timeouts: keeper.Timeouts{
			Lock: r.duration("lock-timeout"), Start: r.duration("start-timeout"), Powerdown: r.duration("powerdown-timeout"),
			Quit: r.duration("quit-timeout"), Monitor: r.duration("monitor-timeout"),
		},
	}
}

func (r *reader) settings(environment func(string) (string, bool)) noderunner.Settings {
	settings := r.keeper(r.text("name"))
	settings.Timeouts.Boot, settings.Timeouts.Hold = r.duration("boot-timeout"), r.duration("hold-timeout")
	return noderunner.Settings{
		Settings: settings,
		Source:   r.source(), MachineType: r.text("machine"), CPUs: r.number("cpus"), Memory: r.memory(), Disks: r.disks(environment),
		DNSServers: r.dnsServers(), NTPServers: addresses(list(r.text("ntp-servers"))), SearchDomains: r.searchDomains(),
		BootData: compact(r.text("boot-data"), r.text("private-boot-data")), State: r.text("state"), Etcd: r.text("etcd"), EtcdDisk: r.size("etcd-disk"),
		Shares: r.shares(), Network: r.text("network"), Ports: r.ports(), ForeignSources: r.yes("foreign-sources"),
		Acceleration: qemu.Mode(r.text("acceleration")), AllowEmulation: r.yes("allow-emulation"), Nested: r.yes("nested-virtualization"),
		ExtraArgs: r.texts("qemu-arg"), Health: r.number("health-port"), API: r.number("api-port"),
	}
}

func (r *reader) source() osimage.Source {
	return osimage.Source{
		Image: r.image(), Images: r.text("images"), ImageDirectories: list(r.text("image-directories")), MaxImageFile: r.size("max-image-file"),
		SigningKeys: r.text("signing-keys"),
	}
}

// must panics on a mistake in this file: a flag that is not registered, or not with that type.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (r *reader) text(name string) string            { return must(r.fs.GetString(name)) }
func (r *reader) texts(name string) []string         { return must(r.fs.GetStringArray(name)) }
func (r *reader) number(name string) int             { return must(r.fs.GetInt(name)) }
func (r *reader) yes(name string) bool               { return must(r.fs.GetBool(name)) }
func (r *reader) duration(name string) time.Duration { return must(r.fs.GetDuration(name)) }

func (r *reader) wrong(name string, err error) {
	if variable, ok := r.variables[name]; ok {
		name += " (" + variable + ")"
	}
	r.errs = append(r.errs, fmt.Errorf("--%s: %w", name, err))
}

// terminationLog is kubelet's file. Outside of a pod it does not exist, and the runner creates none in /dev.
func (r *reader) terminationLog() string {
	path := r.text("termination-log")
	if _, err := os.Stat(path); err != nil && !r.fs.Changed("termination-log") {
		return ""
	}
	return path
}

// memory is in MiB because QEMU takes no fractions of one.
func (r *reader) memory() int64 {
	bytes, err := disk.ParseSize(r.text("memory"))
	if err != nil {
		r.wrong("memory", err)
	}
	return bytes >> 20
}

// size is a number of bytes, or 0 when the flag is empty.
func (r *reader) size(name string) int64 {
	text := r.text(name)
	if text == "" {
		return 0
	}
	bytes, err := disk.ParseSize(text)
	if err != nil {
		r.wrong(name, err)
	}
	return bytes
}

func (r *reader) disks(environment func(string) (string, bool)) []noderunner.Disk {
	descriptions := r.texts("disk")
	if len(descriptions) == 0 {
		for _, d := range diskVariables {
			if size, ok := environment(d.variable); ok && size != "" {
				descriptions = append(descriptions, d.serial+":"+size)
			}
		}
	}
	var disks []noderunner.Disk
	for _, description := range descriptions {
		serial, text, _ := strings.Cut(description, ":")
		size, err := disk.ParseSize(text)
		if err != nil {
			r.wrong("disk", fmt.Errorf("%s: %w", description, err))
		}
		disks = append(disks, noderunner.Disk{Serial: serial, Size: size})
	}
	return disks
}

func (r *reader) shares() []noderunner.Share {
	var shares []noderunner.Share
	for _, description := range list(r.text("shares")) {
		tag, path, ok := strings.Cut(description, ":")
		if !ok || tag == "" || path == "" {
			r.wrong("shares", fmt.Errorf("%q is not <tag>:<path>", description))
		}
		shares = append(shares, noderunner.Share{Tag: tag, Path: path})
	}
	return shares
}

func (r *reader) ports() []usernet.Port {
	var ports []usernet.Port
	for _, text := range list(r.text("ports")) {
		port, err := usernet.ParsePort(text)
		if err != nil {
			r.wrong("ports", err)
		}
		ports = append(ports, port)
	}
	return ports
}

func (r *reader) image() osimage.Image {
	description, version := r.text("image"), r.text("flatcar-version")
	switch {
	case description != "":
		image, err := osimage.Parse([]byte(description))
		if err != nil {
			r.wrong("image", err)
		}
		return image
	case version != "":
		return osimage.FlatcarFrom(r.text("flatcar-mirror"), r.text("flatcar-channel"), version)
	}
	r.wrong("image", errors.New("there is neither an image nor --flatcar-version (FLATCAR_VERSION)"))
	return osimage.Image{}
}

func (r *reader) dnsServers() []netip.Addr {
	texts := list(r.text("dns-servers"))
	if len(texts) == 0 {
		var err error
		if texts, err = resolvconf.Entries(resolvconf.Path, "nameserver"); err != nil {
			r.wrong("dns-servers", err)
		}
	}
	servers := addresses(texts)
	if len(servers) < len(texts) {
		r.wrong("dns-servers", fmt.Errorf("%q are not all addresses", texts))
	}
	return servers
}

func (r *reader) searchDomains() []string {
	domains := list(r.text("search-domains"))
	if len(domains) == 0 {
		var err error
		if domains, err = resolvconf.Entries(resolvconf.Path, "search"); err != nil {
			r.wrong("search-domains", err)
		}
	}
	for i, domain := range domains {
		domains[i] = strings.TrimSuffix(domain, ".")
	}
	return compact(domains...)
}

// addresses returns those of the texts that are IP addresses. Time servers may also be names: boot data can hold these,
// but DHCP cannot.
func addresses(texts []string) []netip.Addr {
	var kept []netip.Addr
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			kept = append(kept, address.WithZone(""))
		}
	}
	return kept
}

func list(text string) []string { return compact(strings.Split(text, ",")...) }

// compact removes empty texts.
func compact(texts ...string) []string {
	var kept []string
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			kept = append(kept, text)
		}
	}
	return kept
}
