// Command smolvm of the demo shows microVMs on this machine: a registry, the server of smolvm's API, and a machine that
// serves on a port, survives its server, is grown and deleted. Nothing of it is left at the end.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func main() {
	exit := flag.Bool("exit", true, "end after the last step; otherwise the machine stays until Ctrl-C")
	tools := flag.String("tools", ".tools/guest", "directory with vmlinuz and micro.cpio.gz")
	program := flag.String("smolvm", "", "the program smolvm")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *program, *tools, *exit)
	if ctx.Err() != nil {
		fmt.Println("==> interrupted; everything is removed")
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// demo is what runs.
type demo struct {
	program, tools, directory string
	registry                  *ocifixture.Registry
	server                    *exec.Cmd
	log                       *os.File
	client                    *api.Client
	begin                     time.Time
	port                      uint16
}

func run(ctx context.Context, program, tools string, exit bool) (err error) {
	d := &demo{program: program, begin: time.Now()}
	if d.tools, err = filepath.Abs(tools); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.remove()) }()
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"a registry on the loopback interface, with an image that serves by HTTP (busybox)", d.serveImages},
		{"the server of smolvm's API (smolvm serve start)", d.startServer},
		{"a machine from the image, with a port of this host", d.create},
		{"its start: pull, squashfs, QEMU, the guest's agent. There is no KVM in most sandboxes: emulation takes ten times as long", d.start},
		{"the port answers", d.fetch},
		{"a command in the guest", d.uname},
		{"the server is killed; the machine keeps running, and the next server finds it", d.killServer},
		{"stop, more storage, start", d.grow},
	}
	for _, step := range steps {
		d.say("%s", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w; the server's log:\n%s", step.what, err, d.lastLog())
		}
	}
	if !exit {
		d.say("the machine stays until Ctrl-C. Try, in another terminal:")
		fmt.Printf("  export SMOLVM_HOST=unix://%s\n  %s machine ls\n  %s machine exec web -- cat /etc/os-release\n  %s machine logs web --follow\n  curl http://127.0.0.1:%d\n",
			d.socket(), d.program, d.program, d.program, d.port)
		<-ctx.Done()
		return nil
	}
	d.say("deleting the machine with its disks")
	if err := d.client.Delete(ctx, "web"); err != nil {
		return err
	}
	d.say("done")
	return nil
}

func (d *demo) say(format string, arguments ...any) {
	fmt.Printf("==> %4.0fs  %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, arguments...))
}

func (d *demo) socket() string { return filepath.Join(d.directory, "smolvm.sock") }

func (d *demo) serveImages(context.Context) error {
	web, err := ocifixture.Web()
	if err != nil {
		return err
	}
	if d.registry, err = ocifixture.Serve(map[string]v1.Image{"library/web:1": web}, nil); err != nil {
		return err
	}
	if d.directory, err = os.MkdirTemp("", "demo-smolvm-"); err != nil {
		return err
	}
	if err := os.Chmod(d.directory, 0o711); err != nil { // QEMU's user passes through
		return err
	}
	if d.log, err = os.Create(filepath.Join(d.directory, "server.log")); err != nil {
		return err
	}
	if d.port, err = ocifixture.FreePort(); err != nil {
		return err
	}
	d.client, err = api.NewClient("unix://"+d.socket(), api.Options{})
	return err
}

func (d *demo) startServer(ctx context.Context) error {
	d.server = exec.Command(d.program, "serve", "start", "--listen=unix://"+d.socket(), "--state="+filepath.Join(d.directory, "state"), "--run="+filepath.Join(d.directory, "run"),
		"--kernel="+filepath.Join(d.tools, "vmlinuz"), "--initrd="+filepath.Join(d.tools, "micro.cpio.gz"), "--allow-emulation",
		"--registry-mirror=docker.io="+d.registry.Host, "--registry-insecure="+d.registry.Host)
	d.server.Stdout, d.server.Stderr = d.log, d.log
	d.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program, which ends the server in order
	fmt.Println("    " + strings.Join(d.server.Args, " "))
	if err := d.server.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll.Until(ctx, 50*time.Millisecond, nil, d.client.Ready)
}

func (d *demo) create(ctx context.Context) error {
	one := int64(1)
	m, err := d.client.Create(ctx, api.CreateRequest{Name: "web", Image: "web:1", StorageGB: &one, OverlayGB: &one, Ports: []api.Port{{Host: d.port, Guest: ocifixture.WebPort}}})
	if err == nil {
		fmt.Printf("    machine %s is %s: %d CPU, %d MiB, image %s, port %d of this host is %d of the guest\n", m.Name, m.State, m.CPUs, m.MemoryMB, m.Image, d.port, ocifixture.WebPort)
	}
	return err
}

func (d *demo) start(ctx context.Context) error {
	begin := time.Now()
	done := make(chan error, 1)
	var m api.Machine
	go func() {
		var err error
		m, err = d.client.Start(ctx, "web", api.StartRequest{})
		done <- err
	}()
	for tick := time.Tick(5 * time.Second); ; {
		select {
		case <-tick:
			if now, err := d.client.Get(ctx, "web"); err == nil {
				fmt.Printf("    %3.0fs  %s\n", time.Since(begin).Seconds(), now.Message)
			}
		case err := <-done:
			if err == nil {
				fmt.Printf("    machine web is %s after %s, accelerator %s, image %.19s\n", m.State, time.Since(begin).Round(100*time.Millisecond), m.Accelerator, m.ImageDigest)
			}
			return err
		}
	}
}

func (d *demo) fetch(ctx context.Context) error {
	url := fmt.Sprintf("http://127.0.0.1:%d/", d.port)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var text string
	err := poll.Until(ctx, 100*time.Millisecond, nil, func(ctx context.Context) (err error) {
		text, err = get(ctx, url)
		return err
	})
	if err == nil {
		fmt.Printf("    curl %s: %s", url, text)
	}
	return err
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	return string(text), err
}

// inGuest runs a command in the guest and returns what it printed.
func (d *demo) inGuest(ctx context.Context, command ...string) (string, error) {
	var out, errs bytes.Buffer
	code, err := d.client.ExecStream(ctx, "web", api.ExecRequest{Command: command}, &out, &errs)
	if err == nil && code != 0 {
		err = fmt.Errorf("%v ended with exit code %d: %s", command, code, errs.String())
	}
	return strings.TrimSpace(out.String()), err
}

func (d *demo) uname(ctx context.Context) error {
	text, err := d.inGuest(ctx, "sh", "-c", `hostname; uname -sr; id -un; df -h /storage | tail -1`)
	fmt.Println("    " + strings.ReplaceAll(text, "\n", "\n    "))
	return err
}

func (d *demo) killServer(ctx context.Context) error {
	before, err := d.client.Get(ctx, "web")
	if err != nil {
		return err
	}
	if err := errors.Join(d.server.Process.Kill(), ignoreKill(d.server.Wait())); err != nil {
		return err
	}
	if err := d.fetch(ctx); err != nil {
		return err
	}
	if err := d.startServer(ctx); err != nil {
		return err
	}
	after, err := d.client.Get(ctx, "web")
	if err != nil {
		return err
	}
	if after.State != api.StateRunning || after.PID != before.PID {
		return fmt.Errorf("the machine is %s with QEMU %d, and was %s with %d", after.State, after.PID, before.State, before.PID)
	}
	fmt.Printf("    machine web is %s, QEMU is still process %d\n", after.State, after.PID)
	return nil
}

func ignoreKill(err error) error {
	if _, killed := errors.AsType[*exec.ExitError](err); killed {
		return nil
	}
	return err
}

func (d *demo) grow(ctx context.Context) error {
	if _, err := d.client.Stop(ctx, "web"); err != nil {
		return err
	}
	two := int64(2)
	if _, err := d.client.Resize(ctx, "web", api.ResizeRequest{StorageGB: &two}); err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	text, err := d.inGuest(ctx, "df", "-h", "/storage")
	fmt.Println("    " + strings.ReplaceAll(text, "\n", "\n    "))
	return err
}

// remove ends what runs and removes what was made.
func (d *demo) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if d.server != nil && d.server.Process != nil {
		if machines, err := d.client.List(ctx); err == nil {
			for _, m := range machines {
				errs = append(errs, d.client.Delete(ctx, m.Name))
			}
		}
		errs = append(errs, d.server.Process.Signal(syscall.SIGTERM), ignoreKill(d.server.Wait()))
	}
	if d.registry != nil {
		errs = append(errs, d.registry.Close())
	}
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	if d.directory != "" {
		errs = append(errs, os.RemoveAll(d.directory))
	}
	return errors.Join(errs...)
}

// lastLog returns the last lines of the server's log.
func (d *demo) lastLog() string {
	text, err := os.ReadFile(filepath.Join(d.directory, "server.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
