// Package kubevirt runs KubeVirt's real virt-api and virt-controller beside a management cluster whose nodes kwok
// simulates. It plays two parts itself. One is virt-operator's: it installs KubeVirt's definitions, roles, webhooks and
// subresources, all made by KubeVirt's own code. The other is virt-handler's, see Handler.
//
// Nothing is left behind: the processes end with the one that started them, and their files are in the state directory
// of the management cluster. Each KubeVirt chooses its own ports, so several can run at the same time.
package kubevirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

const (
	// Namespace is where KubeVirt's service accounts, its Service and its configuration are.
	Namespace = "kubevirt"
	// serverName is the name by which the API server checks the certificate of virt-api: that of the Service.
	serverName   = "virt-api." + Namespace + ".svc"
	program      = "kubevirt"
	manifestFile = "kubevirt-manifests.yaml"
	pollInterval = 50 * time.Millisecond
	slowInterval = 200 * time.Millisecond
)

// Needs returns options of a management cluster, changed so that KubeVirt can run beside it: with a controller manager,
// a scheduler and kwok, and with an API server that calls virt-api on loopback. A Service with endpoints cannot name a
// loopback address. One of type ExternalName can, and the API server only follows it when it does not route to
// endpoints itself.
func Needs(options managementcluster.Options) managementcluster.Options {
	options.ControllerManager, options.Scheduler, options.Kwok = true, true, true
	flags := map[managementcluster.Component][]string{}
	for component, more := range options.Flags {
		flags[component] = more
	}
	flags[managementcluster.APIServer] = append([]string{"--enable-aggregator-routing=false"},
		flags[managementcluster.APIServer]...)
	options.Flags = flags
	return options
}

// Options say how KubeVirt starts. The zero value installs and starts it.
type Options struct {
	// Absent leaves KubeVirt uninstalled until Install is called.
	Absent bool
	// Output receives lines of progress, one in each Write. Default: they are dropped.
	Output io.Writer
}

// KubeVirt is KubeVirt beside a management cluster. Its methods may be called from several goroutines, but those that
// install, uninstall, start or stop something not at the same time.
type KubeVirt struct {
	cluster *managementcluster.Cluster
	output  io.Writer
	dir     string
	admin   client.Client  // of an administrator
	ports   map[string]int // of the programs
	handler *Handler

	mu      sync.Mutex // guards running, beats and saying
	running map[string]*process.Process
	beats   map[string]bool // the nodes whose virt-handler is alive
	end     func()          // ends the heartbeats
}

// Start runs KubeVirt beside a cluster that was started with the options that Needs returns. It returns when the
// webhooks and the subresources are in effect, unless Options.Absent. The context limits only the start.
func Start(ctx context.Context, cluster *managementcluster.Cluster, options Options) (*KubeVirt, error) {
	k := &KubeVirt{
		cluster: cluster, output: options.Output, dir: filepath.Join(cluster.Dir(), program),
		ports: map[string]int{}, running: map[string]*process.Process{}, beats: map[string]bool{},
	}
	if k.output == nil {
		k.output = io.Discard
	}
	if err := k.prepare(); err != nil {
		return nil, fmt.Errorf("preparing KubeVirt: %w", err)
	}
	k.beat()
	if options.Absent {
		return k, nil
	}
	if err := k.Install(ctx); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return k, nil
}

// Stop ends KubeVirt's processes and virt-handler's player. What is installed stays in the cluster. It may be called
// again.
func (k *KubeVirt) Stop() error {
	k.end()
	k.handler.stop()
	return errors.Join(k.stopProgram(virtAPI), k.stopProgram(virtController))
}

// Client returns an administrator's client without a cache, for unstructured objects.
func (k *KubeVirt) Client() client.Client { return k.admin }

// Handler returns the player of virt-handler, which runs while KubeVirt is installed.
func (k *KubeVirt) Handler() *Handler { return k.handler }

// Dir returns the directory with the logs of the programs: virt-api.log and virt-controller.log.
func (k *KubeVirt) Dir() string { return k.dir }

// PID returns the process id of virt-api or virt-controller, or 0 when it does not run.
func (k *KubeVirt) PID(program string) int {
	if p := k.process(program); p != nil {
		return p.PID()
	}
	return 0
}

// prepare chooses ports, writes the files of the programs and makes the clients.
func (k *KubeVirt) prepare() error {
	for _, name := range []string{program, manifestFile} {
		if _, err := os.Stat(filepath.Join(k.cluster.Tools(), name)); err != nil {
			return fmt.Errorf("the tool %s is missing: %w (run `integration/build.sh .tools kubevirt`)", name, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(k.certificate("tls.crt")), 0o755); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	if err := k.writeFiles(); err != nil {
		return err
	}
	config := k.cluster.RESTConfig()
	config.QPS = -1 // no limit, whose error would hide what a test waits for
	var err error
	if k.admin, err = client.New(config, client.Options{}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	k.handler, err = newHandler(k.cluster)
	return err
}

// account returns the user and the groups of one of KubeVirt's service accounts.
func account(name string) (user string, groups []string) {
	return "system:serviceaccount:" + Namespace + ":" + name,
		[]string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"}
}

// configFor returns the configuration of a client that is one of KubeVirt's service accounts.
func configFor(cluster *managementcluster.Cluster, name string) (*rest.Config, error) {
	user, groups := account(name)
	return cluster.RESTConfigFor(user, groups...)
}

// transport connects to KubeVirt's programs and accepts only a certificate of the cluster's CA.
func (k *KubeVirt) transport() *http.Transport {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(k.cluster.Authority())
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: serverName}}
}

// say prints a line of progress.
func (k *KubeVirt) say(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintf(k.output, format+"\n", args...)
}
