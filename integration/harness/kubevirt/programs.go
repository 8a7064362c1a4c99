package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

// The programs of KubeVirt's control plane.
const (
	virtAPI        = "virt-api"
	virtController = "virt-controller"
)

// accounts are the service accounts of the programs.
var accounts = map[string]string{virtAPI: "kubevirt-apiserver", virtController: "kubevirt-controller"}

// StopAPI kills virt-api, as a crash would: the webhooks and the subresources stop answering.
func (k *KubeVirt) StopAPI() error { return k.stopProgram(virtAPI) }

// StartAPI starts virt-api after StopAPI, on its old port, and returns when it serves. The webhooks are in effect then.
// The subresources may be later: the API server looks after them at growing intervals, of up to 30 s.
func (k *KubeVirt) StartAPI(ctx context.Context) error { return k.startPrograms(ctx, virtAPI) }

// StopController kills virt-controller, as a crash would.
func (k *KubeVirt) StopController() error { return k.stopProgram(virtController) }

// StartController starts virt-controller after StopController and returns when it leads.
func (k *KubeVirt) StartController(ctx context.Context) error {
	return k.startPrograms(ctx, virtController)
}

// startPrograms starts programs in parallel and returns when all are ready.
func (k *KubeVirt) startPrograms(ctx context.Context, names ...string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error {
			if err := k.startProgram(ctx, name); err != nil {
				return errors.Join(fmt.Errorf("starting %s: %w", name, err), k.stopProgram(name))
			}
			return nil
		})
	}
	return group.Wait()
}

func (k *KubeVirt) startProgram(ctx context.Context, name string) error {
	began := time.Now()
	if name == virtController {
		if err := k.vacate(ctx); err != nil {
			return err
		}
	}
	p, err := k.spawn(name)
	if err != nil {
		return err
	}
	transport := k.transport()
	defer transport.CloseIdleConnections()
	base := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(k.ports[name]))
	err = poll.Until(ctx, pollInterval, p.Done(), func(ctx context.Context) error {
		return poll.Get(ctx, transport, base+"/healthz")
	})
	if err == nil && name == virtController {
		err = poll.Until(ctx, pollInterval, p.Done(), func(ctx context.Context) error { return leads(ctx, transport, base) })
	}
	if err != nil {
		return errors.Join(err, p.Failure())
	}
	k.say("%s is ready after %.1fs", name, time.Since(began).Seconds())
	return nil
}

// vacate deletes the Lease of the former virt-controller, which was killed and holds it still. There is never another one.
func (k *KubeVirt) vacate(ctx context.Context) error {
	lease := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: virtController}}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	if err := client.IgnoreNotFound(k.admin.Delete(ctx, lease)); err != nil {
		return fmt.Errorf("deleting the Lease of virt-controller: %w", err)
	}
	return nil
}

func (k *KubeVirt) spawn(name string) (*process.Process, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running[name] != nil {
		return nil, errors.New("it runs already")
	}
	p, err := process.Start(process.Command{
		Name: name, Path: filepath.Join(k.cluster.Tools(), program), Args: append([]string{name}, k.flags(name)...),
		// It makes temporary directories that it never removes.
		Env: []string{"TMPDIR=" + k.dir}, Dir: k.dir,
	})
	if err != nil {
		return nil, err
	}
	k.running[name] = p
	return p, nil
}

func (k *KubeVirt) stopProgram(name string) error {
	k.mu.Lock()
	p := k.running[name]
	delete(k.running, name)
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Stop(0)
}

func (k *KubeVirt) process(name string) *process.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[name]
}

func (k *KubeVirt) flags(name string) []string {
	flags := []string{
		"--kubeconfig=" + k.path(name+".kubeconfig"), "--listen=127.0.0.1", "--port=" + strconv.Itoa(k.ports[name]), "-v=2",
	}
	if name == virtController {
		// It ends when it cannot renew its Lease, by default within ten seconds, and nothing here would start it again. A
		// machine that is busy with other tests takes longer at times.
		return append(flags, "--prom-cert-file="+k.certificate("tls.crt"), "--prom-key-file="+k.certificate("tls.key"),
			"--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m")
	}
	return append(flags, "--tls-cert-file="+k.certificate("tls.crt"), "--tls-key-file="+k.certificate("tls.key"),
		"--handler-cert-file="+k.certificate("tls.crt"), "--handler-key-file="+k.certificate("tls.key"))
}

// writeFiles writes the certificate and the kubeconfigs of the programs.
func (k *KubeVirt) writeFiles() error {
	if err := k.choosePorts(); err != nil {
		return err
	}
	certificate, key, err := k.cluster.ServingCertificate(serverName, net.IPv4(127, 0, 0, 1))
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(k.certificate("tls.crt"), certificate, 0o644), os.WriteFile(k.certificate("tls.key"), key, 0o600))
	if err != nil {
		return fmt.Errorf("writing the certificate of virt-api: %w", err)
	}
	for name, of := range accounts {
		user, groups := account(of)
		if err := k.cluster.WriteKubeconfig(k.path(name+".kubeconfig"), user, groups...); err != nil {
			return err
		}
	}
	return nil
}

func (k *KubeVirt) path(name string) string { return filepath.Join(k.dir, name) }

// certificate returns the path of a file of the certificate. The programs read it again, and say so in their logs,
// whenever anything in its directory changes. So their logs are elsewhere.
func (k *KubeVirt) certificate(name string) string { return filepath.Join(k.dir, "certificate", name) }

// choosePorts chooses one port for each program.
func (k *KubeVirt) choosePorts() error {
	taken := map[int]bool{}
	for name := range accounts {
		for k.ports[name] == 0 || taken[k.ports[name]] {
			port, err := k.cluster.FreePort()
			if err != nil {
				return err
			}
			k.ports[name] = port
		}
		taken[k.ports[name]] = true
	}
	return nil
}

// leads returns nil when virt-controller leads and its caches are filled.
func leads(ctx context.Context, transport http.RoundTripper, base string) error {
	answer, err := poll.Read(ctx, transport, base+"/leader")
	if err == nil && !strings.Contains(answer, `"leader": "true"`) {
		err = fmt.Errorf("virt-controller does not lead yet: %s", answer)
	}
	return err
}
