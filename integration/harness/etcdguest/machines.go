// Package etcdguest runs the etcd members of simulated machines. They are real processes that start as the boot data of
// their masters says, on disks that outlive the machine.
package etcdguest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// again is how long the kubelet of a machine waits before it restarts a member that has ended.
const again = 500 * time.Millisecond

// Machines are the machines of masters. Close them when done.
type Machines struct {
	management client.Reader
	binary     string
	directory  string
	domain     string
	// made counts addresses and starts at a random number.
	made int

	mu  sync.Mutex
	all []*machine
	// released are the pods whose machines never run again, by namespace and name.
	released map[string]bool
	over     bool
}

// machine is the machine of one master. Its disk and its address remain when it is off.
type machine struct {
	// cluster is the namespace, and node is the id of the master.
	cluster, node string
	// root is the disk, and address is where the member answers.
	root, address string

	// pod is the pod whose machine runs. end and ended stop it. They are empty and nil while none runs. Machines.mu
	// guards them.
	pod   string
	end   context.CancelFunc
	ended chan struct{}
	// released says that the last of them was released.
	released bool
	// member is the process of the last member. frozen is since when it is frozen, or zero while it is not.
	member *process.Process
	frozen time.Time
	// off is until when the machine does not start. down is since when its member does not run, or zero while it does.
	// trouble is the reason.
	off, down time.Time
	trouble   string
}

// New returns machines whose boot data is in the management cluster. domain is the domain of its Services.
func New(management client.Reader, domain string) (*Machines, error) {
	_, file, _, _ := runtime.Caller(0)
	binary := filepath.Join(filepath.Dir(file), "..", "..", "..", ".tools", "etcd")
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w; `make tools` installs it", err)
	}
	if output, err := exec.Command("unshare", named("/etc/hosts", "true", nil)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("members need a mount namespace each, for which one has to be root or have user namespaces: %w\n%s", err, output)
	}
	directory, err := os.MkdirTemp("", "etcdguest-")
	if err != nil {
		return nil, err
	}
	m := &Machines{
		management: management, binary: binary, directory: directory, domain: domain, made: rand.IntN(1 << 20), released: map[string]bool{},
	}
	return m, m.nameAll()
}

// Close ends all machines and removes their disks.
func (m *Machines) Close() error {
	m.mu.Lock()
	m.over = true
	all := slices.Clone(m.all)
	m.mu.Unlock()
	for _, c := range all {
		m.stop(c, "")
	}
	return os.RemoveAll(m.directory)
}

// Address returns where the member on a node pod answers clients, as host:port.
func (m *Machines) Address(pod *corev1.Pod) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s:%d", m.of(pod.Namespace, pod.Labels[key.LabelNode]).address, key.PortEtcdClient)
}

// of returns the machine of a master, and creates it on the first call.
func (m *Machines) of(cluster, node string) *machine {
	for _, c := range m.all {
		if c.cluster == cluster && c.node == node {
			return c
		}
	}
	m.made++
	n := m.made
	c := &machine{
		cluster: cluster, node: node, root: filepath.Join(m.directory, cluster, node),
		// Addresses of loopback, different in each world.
		address: fmt.Sprintf("127.%d.%d.%d", 80+n/254/256%32, n/254%256, 1+n%254), down: time.Now(),
	}
	m.all = append(m.all, c)
	if err := m.nameAll(); err != nil {
		c.trouble = err.Error()
	}
	return c
}

// hosts is the file that maps members' names to addresses because no resolver knows them.
func (m *Machines) hosts() string { return filepath.Join(m.directory, "hosts") }

// nameAll writes all names to the file.
func (m *Machines) nameAll() error {
	text := "127.0.0.1 localhost\n"
	for _, c := range m.all {
		text += c.address + " " + m.host(c) + "\n"
	}
	return os.WriteFile(m.hosts(), []byte(text), 0o600) // in place, because members have it mounted
}

// named returns the arguments with which unshare runs a program with a file as its own /etc/hosts.
func named(hosts, program string, arguments []string) []string {
	all := []string{"--mount"}
	if os.Getuid() != 0 {
		all = append(all, "--map-root-user")
	}
	all = append(all, "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, hosts, program)
	return append(all, arguments...)
}

// host returns the name of a machine's member, as the management cluster resolves it.
func (m *Machines) host(c *machine) string {
	return key.ServiceHost(key.DeploymentName(key.RoleMaster, c.node), c.cluster, m.domain)
}

// dial connects to a member by its name.
func (m *Machines) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	at := slices.IndexFunc(m.all, func(c *machine) bool { return m.host(c) == host })
	if at < 0 {
		m.mu.Unlock()
		return nil, fmt.Errorf("there is no host %s", host)
	}
	address = net.JoinHostPort(m.all[at].address, port)
	m.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

var errOff = errors.New("the machine is off for a moment")

// Start runs the machine of a pod unless it already runs. It fails while another one uses its disk.
func (m *Machines) Start(pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(pod.Namespace, pod.Labels[key.LabelNode])
	switch {
	case c.pod == pod.Name || m.over || m.released[pod.Namespace+"/"+pod.Name]:
		return nil
	case c.pod != "":
		return fmt.Errorf("the disk of %s/%s is in use by the machine of pod %s", c.cluster, c.node, c.pod)
	case time.Now().Before(c.off):
		return errOff
	}
	life, end := context.WithCancel(context.Background())
	c.released = false
	c.pod, c.end, c.ended = pod.Name, end, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		m.run(life, c, pod)
	}(c.ended)
	return nil
}

// Stop powers the machine of a pod off, as a power failure does, and returns when it is off.
func (m *Machines) Stop(namespace, pod string) { m.Crash(namespace, pod, 0) }

// Release stops a machine that never starts again.
func (m *Machines) Release(namespace, pod string) {
	m.mu.Lock()
	m.released[namespace+"/"+pod] = true
	for _, c := range m.all {
		c.released = c.released || c.cluster == namespace && c.pod == pod
	}
	m.mu.Unlock()
	m.Stop(namespace, pod)
}

// Crash stops a machine that does not start again for some time.
func (m *Machines) Crash(namespace, pod string, off time.Duration) {
	m.mu.Lock()
	at := slices.IndexFunc(m.all, func(c *machine) bool { return c.cluster == namespace && c.pod == pod })
	if at < 0 {
		m.mu.Unlock()
		return
	}
	c := m.all[at]
	c.off = time.Now().Add(off)
	m.mu.Unlock()
	m.stop(c, pod)
}

// stop ends the machine of a pod, or of any pod if none is named.
func (m *Machines) stop(c *machine, pod string) {
	m.mu.Lock()
	if c.pod == "" || pod != "" && c.pod != pod {
		m.mu.Unlock()
		return
	}
	pod = c.pod
	ended := c.ended
	c.end()
	m.mu.Unlock()
	<-ended
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.pod == pod {
		c.pod, c.end, c.ended = "", nil, nil
	}
}

// Runs reports whether the member of a pod's machine has started.
func (m *Machines) Runs(pod *corev1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(pod.Namespace, pod.Labels[key.LabelNode])
	return c.pod == pod.Name && c.down.IsZero()
}

// Discard removes the disks of machines that are off and no longer wanted.
func (m *Machines) Discard(cluster string, wanted func(node string) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	m.all = slices.DeleteFunc(m.all, func(c *machine) bool {
		if c.cluster != cluster || c.pod != "" || wanted(c.node) {
			return false
		}
		errs = append(errs, os.RemoveAll(c.root))
		return true
	})
	return errors.Join(errs...)
}

// run runs a machine until it ends: it boots, and its kubelet runs the member.
func (m *Machines) run(ctx context.Context, c *machine, pod *corev1.Pod) {
	var arguments []string
	for ctx.Err() == nil {
		var err error
		if arguments, err = m.boot(ctx, c, pod); err == nil {
			break
		}
		m.note(c, time.Now(), err.Error())
		pause(ctx, again)
	}
	for ctx.Err() == nil {
		p, err := process.Start(process.Command{
			Name: "etcd", Path: "unshare", Args: named(m.hosts(), m.binary, arguments), Dir: c.root,
		})
		if err != nil {
			m.note(c, time.Now(), err.Error())
			pause(ctx, again)
			continue
		}
		m.begun(c, p)
		select {
		case <-ctx.Done():
			_ = p.Stop(0) // it is killed
			m.note(c, time.Now(), "it is off")
			return
		case <-p.Done():
			m.note(c, time.Now(), fmt.Sprint(p.Failure()))
			pause(ctx, again)
		}
	}
}

// begun records that a member has started.
func (m *Machines) begun(c *machine, member *process.Process) {
	m.mu.Lock()
	c.member, c.frozen = member, time.Time{}
	m.mu.Unlock()
	m.note(c, time.Time{}, "")
}

// Freeze freezes members of a cluster, as if their machines hung or were isolated. It returns the function that resumes
// those that still exist.
func (m *Machines) Freeze(cluster string, which func(node string) bool) (thaw func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	frozen := map[*machine]*process.Process{}
	for _, c := range m.all {
		if c.cluster == cluster && c.down.IsZero() && which(c.node) {
			frozen[c], c.frozen = c.member, time.Now()
			_ = c.member.Signal(syscall.SIGSTOP) // one that has just ended is frozen, too
		}
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for c, member := range frozen {
			_ = member.Signal(syscall.SIGCONT) // it may have ended
			if c.member == member {
				c.frozen = time.Time{}
			}
		}
	}
}

func (m *Machines) note(c *machine, down time.Time, trouble string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if down.IsZero() || c.down.IsZero() {
		c.down = down
	}
	c.trouble = trouble
}

// Story describes the machines of a cluster.
func (m *Machines) Story(cluster string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var text strings.Builder
	for _, c := range m.all {
		if c.cluster != cluster {
			continue
		}
		fmt.Fprintf(&text, "\n  machine of %s: pod %q, down since %s %s, %s", c.node, c.pod, c.down.Format(time.TimeOnly), c.trouble, c.certificates())
		if tail, err := process.Tail(filepath.Join(c.root, "etcd.log"), 3); err == nil {
			text.WriteString("\n    " + strings.ReplaceAll(tail, "\n", "\n    "))
		}
	}
	return text.String()
}

// certificates returns a summary of the certificates on the disk.
func (c *machine) certificates() string {
	var all []string
	found, err := filepath.Glob(filepath.Join(c.root, "etc", "kubernetes", "pki", "etcd", "*"))
	for _, path := range found {
		text, err := os.ReadFile(path)
		if cert, parseErr := pki.ParseCertificate(text); err == nil && parseErr == nil {
			all = append(all, fmt.Sprintf("%s: %s by %s (%x), from %s, for %v", filepath.Base(path), cert.Subject, cert.Issuer, cert.AuthorityKeyId,
				cert.NotBefore, cert.DNSNames))
		}
	}
	return fmt.Sprint(all, err)
}

// pause waits for d, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
