package smolvm

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/microvm"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/scope"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/resolvconf"
)

func newServe() *cobra.Command {
	c := &cobra.Command{Use: "serve", Short: "Serve smolvm's HTTP API"}
	start := &cobra.Command{
		Use:   "start",
		Short: "Serve smolvm's HTTP API on this host",
		Long: `Serve smolvm's HTTP API on this host, and run its machines with QEMU.

The machines do not end with the server: the next server with the same --state finds them. POST /drain, or smolvm drain, shuts all of
them down. The socket is open to its user alone, because every request on it is granted.`,
		Example: `  # as root, below /var/lib/smolvm and /var/run/smolvm
  smolvm serve start

  # on a desk without KVM, with files of this checkout
  smolvm serve start --state=try --listen=unix://try/smolvm.sock --allow-emulation \
    --kernel=.tools/guest/vmlinuz --initrd=.tools/guest/micro.cpio.gz`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c) },
	}
	registerServe(start.Flags())
	openapi := &cobra.Command{
		Use: "openapi", Short: "Print the description of the API (OpenAPI)", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(server.OpenAPI(project.Version()))
			return err
		},
	}
	c.AddCommand(start, openapi)
	return c
}

func registerServe(fs *pflag.FlagSet) {
	fs.StringP("listen", "l", environment("SMOLVM_LISTEN", defaultAddress()), "unix://PATH, or ADDRESS:PORT of the loopback interface (SMOLVM_LISTEN)")
	fs.String("state", environment("SMOLVM_DATA_DIR", defaultState()), "directory for machines and images (SMOLVM_DATA_DIR)")
	fs.String("run", "", "directory for the machines' sockets; empty means /var/run/smolvm with the state directory /var/lib/smolvm, and run in the state directory otherwise")
	fs.String("kernel", "/usr/share/smolvm/vmlinuz", "kernel of the guests")
	fs.String("initrd", "/usr/share/smolvm/initrd", "initial RAM disk of the guests, with the agent")
	fs.String("qemu", "qemu-system-x86_64", "QEMU, by name or path")
	fs.Int("qemu-user", keeper.QEMUUser, "number of the user and group that QEMU runs as; 0 is this user. It needs root")
	fs.String("acceleration", "auto", "auto, kvm or tcg (emulation in software)")
	fs.Bool("allow-emulation", false, "let machines run by emulation in software where KVM does not work; a machine is then 10 to 50 times slower")
	fs.Duration("ready-timeout", 0, fmt.Sprintf("how long a guest may take until its agent answers; 0 means %s with KVM and %s without", instance.ReadyKVM, instance.ReadyTCG))
	fs.String("publish-address", environment("SMOLVM_PUBLISH_ADDR", "127.0.0.1"), "address of this host at which ports are published (SMOLVM_PUBLISH_ADDR)")
	fs.String("publish-ports", microvm.AllPorts, "ports of this host that machines may publish: ranges such as 1024-10247,10260-65535. A machine with another port is neither created nor started")
	fs.String("egress-floor", environment("SMOLVM_EGRESS_FLOOR", string(egress.FloorStrict)), "what no guest reaches: strict (this host, private and link-local networks), metadata (this host, link-local networks), off (SMOLVM_EGRESS_FLOOR)")
	fs.StringSlice("egress-allow", nil, "networks that guests reach although the floor denies them, as CIDR")
	fs.StringSlice("resolver", nil, "addresses that answer guests' queries for names; empty means those of /etc/resolv.conf")
	fs.StringToString("registry-mirror", nil, "registry=mirror: where images of a registry are asked for first")
	fs.StringSlice("registry-insecure", nil, "registries, host:port, that are asked without verifying TLS")
	fs.String("registry-ca", "", "file with CA certificates for registries, in addition to those of this host")
	fs.String("registry-config", "", "directory with a config.json, as docker login writes it, whose credentials are for the images of all machines; empty means that of this user. It is read for each pull")
	fs.Duration("keep-images", 30*24*time.Hour, "how long an image is kept that no machine uses")
	fs.String("cgroup-parent", "", "cgroup below which each machine gets one, so that it outlives the server's; empty means that it stays in the server's")
	fs.String("cgroup-root", scope.Root, "where cgroups are mounted")
	fs.Bool("json-logs", false, "log as JSON")
	fs.BoolP("verbose", "v", false, "log more")
}

// serve runs until the context of the command ends.
func serve(c *cobra.Command) error {
	r := &reader{fs: c.Flags()}
	settings := r.settings()
	images := r.images(settings.Images)
	if err := errors.Join(append(r.errs, checkFiles(settings.Host))...); err != nil {
		return &ExitError{Code: 2, Err: err}
	}
	log := r.log(c.ErrOrStderr())
	images.Progress = func(text string) { log.Info("Image", "progress", text) }
	meters := server.NewMeters()
	settings.Meter = meters
	self, err := os.Executable()
	if err != nil {
		return err
	}
	machines, err := microvm.Open(settings, images, microvm.Processes{
		Program: self, Arguments: []string{"keeper"}, Run: settings.Run, CgroupParent: settings.Host.CgroupParent, CgroupRoot: settings.Host.CgroupRoot,
	}, log)
	if err != nil {
		return err
	}
	defer func() { _ = machines.Close() }()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	supervising := make(chan struct{})
	go func() { defer close(supervising); machines.Run(ctx) }()
	go prune(ctx, images, r.duration("keep-images"), log)
	listener, err := server.Listen(ctx, r.text("listen"), false)
	if err != nil {
		cancel()
		<-supervising
		return err
	}
	log.Info("Serving smolvm's API on QEMU; machines keep running when this server ends", "listen", r.text("listen"), "state", settings.State, "version", settings.Version)
	err = server.Serve(ctx, listener, server.New(server.Options{Machines: machines, Log: log, Version: settings.Version, Meters: meters, DrainTime: microvm.DrainTimeout}))
	cancel()
	<-supervising
	return err
}

// pruneEvery is how often images are removed that were not used for long.
const pruneEvery = time.Hour

func prune(ctx context.Context, images *ociimage.Cache, keep time.Duration, log *slog.Logger) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		if err := images.Prune(ctx, keep); err != nil && ctx.Err() == nil {
			log.Error("Images cannot be removed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checkFiles checks at the start what every machine needs.
func checkFiles(h instance.Host) error {
	var errs []error
	for _, f := range []struct{ flag, path string }{{"kernel", h.Kernel}, {"initrd", h.Initrd}} {
		if _, err := os.Stat(f.path); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.flag, err))
		}
	}
	for _, program := range []string{h.QEMU, "mksquashfs", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("finding a program: %w; install the packages qemu-system-x86, squashfs-tools and e2fsprogs", err))
		}
	}
	return errors.Join(errs...)
}

// reader reads flags and collects what is wrong with them.
type reader struct {
	fs   *pflag.FlagSet
	errs []error
}

func (r *reader) check(flag string, err error) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("--%s: %w", flag, err))
	}
}

func (r *reader) text(flag string) string {
	value, err := r.fs.GetString(flag)
	r.check(flag, err)
	return value
}

func (r *reader) list(flag string) []string {
	value, err := r.fs.GetStringSlice(flag)
	r.check(flag, err)
	return value
}

func (r *reader) duration(flag string) time.Duration {
	value, err := r.fs.GetDuration(flag)
	r.check(flag, err)
	if value < 0 {
		r.check(flag, errors.New("it is negative"))
	}
	return value
}

func (r *reader) yes(flag string) bool {
	value, err := r.fs.GetBool(flag)
	r.check(flag, err)
	return value
}

// path returns an absolute path: machines' processes run elsewhere.
func (r *reader) path(flag string) string {
	value, err := filepath.Abs(r.text(flag))
	r.check(flag, err)
	return value
}

func (r *reader) settings() microvm.Settings {
	state := r.path("state")
	run := filepath.Join(state, "run")
	switch {
	case r.text("run") != "":
		run = r.path("run")
	case os.Geteuid() == 0 && state == defaultState():
		run = "/var/run/smolvm"
	}
	user, err := r.fs.GetInt("qemu-user")
	r.check("qemu-user", err)
	publish, err := netip.ParseAddr(r.text("publish-address"))
	r.check("publish-address", err)
	ports, err := microvm.ParsePortRanges(r.text("publish-ports"))
	r.check("publish-ports", err)
	return microvm.Settings{
		State: state, Run: run, Images: state, Artifacts: filepath.Join(state, "artifacts"), Publish: publish, PublishPorts: ports, Egress: r.policy(), Resolvers: r.resolvers(), Version: project.Version(), SurvivesRestart: r.text("cgroup-parent") != "",
		Host: instance.Host{
			QEMU: r.text("qemu"), QEMUUser: user, Kernel: r.path("kernel"), Initrd: r.path("initrd"), Acceleration: r.acceleration(), AllowEmulation: r.yes("allow-emulation"),
			Proved: filepath.Join(state, "proved"), Ready: r.duration("ready-timeout"), CgroupParent: r.text("cgroup-parent"), CgroupRoot: r.text("cgroup-root"),
		},
	}
}

func (r *reader) acceleration() qemu.Mode {
	mode := qemu.Mode(r.text("acceleration"))
	if mode != qemu.ModeAuto && mode != qemu.ModeKVM && mode != qemu.ModeTCG {
		r.check("acceleration", fmt.Errorf("%q is neither auto, kvm nor tcg", mode))
	}
	return mode
}

func (r *reader) policy() egress.Policy {
	floor, err := egress.ParseFloor(r.text("egress-floor"))
	r.check("egress-floor", err)
	exceptions, err := egress.ParseAllowed(r.list("egress-allow"))
	r.check("egress-allow", err)
	return egress.Policy{Floor: floor, Exceptions: exceptions}
}

func (r *reader) resolvers() []netip.AddrPort {
	texts := r.list("resolver")
	if len(texts) == 0 {
		texts = resolversOf(resolvconf.Path)
	}
	var found []netip.AddrPort
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		r.check("resolver", err)
		found = append(found, netip.AddrPortFrom(address, 53))
	}
	return found
}

// resolversOf returns the addresses of name servers in a file (resolv.conf(5)).
func resolversOf(path string) []string {
	values, err := resolvconf.Entries(path, "nameserver")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(values, func(value string) bool {
		_, err := netip.ParseAddr(value)
		return err != nil
	})
}

func (r *reader) images(directory string) *ociimage.Cache {
	mirrors, err := r.fs.GetStringToString("registry-mirror")
	r.check("registry-mirror", err)
	registries := ociimage.Registries{Mirrors: map[string][]string{}, Insecure: r.list("registry-insecure")}
	for registry, mirror := range mirrors {
		registries.Mirrors[registry] = []string{mirror}
	}
	if path := r.text("registry-ca"); path != "" {
		registries.CA, err = readCA(path)
		r.check("registry-ca", err)
	}
	if path := r.text("registry-config"); path != "" {
		registries.Keychain = ociimage.Keychain(path)
	}
	return &ociimage.Cache{Directory: directory, Registries: registries, Limits: ociimage.DefaultLimits}
}

// readCA returns this host's authorities and those of a file.
func readCA(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in the form of PEM", path)
	}
	return pool, nil
}

func (r *reader) log(out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{}
	if r.yes("verbose") {
		options.Level = slog.LevelDebug
	}
	if r.yes("json-logs") {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}
