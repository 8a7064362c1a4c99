// Package etcd_test tests package etcd on clusters of real etcd processes, while their members and their keepers are
// killed.
package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
)

// most is the largest number of masters of a test, including past ones.
const most = 12

// patience is how long a change of one member may take on a machine with shared CPUs.
const patience = 4 * time.Minute

// cluster is the etcd of one workload cluster: processes that represent machines. Each has its own loopback address.
type cluster struct {
	t      *testing.T
	binary string
	dir    string
	net    byte
	// quota is the maximum size of databases in bytes. Zero is etcd's default.
	quota    int64
	pairs    pki.Set
	founders []etcd.Master

	mu       sync.Mutex
	wanted   []etcd.Master
	machines map[string]*process.Process
	// seen are masters whose members are known to have run, as the operator records it.
	seen map[string]bool
	// broken are masters whose machines do not come back.
	broken map[string]bool
	keeper *etcd.Keeper
	// end stops the first operator.
	end context.CancelFunc
	// over says that no further machine may start.
	over bool
	// instants counts the checks of the quorum.
	instants int

	// mayLose says that the test itself breaks the quorum.
	mayLose atomic.Bool
	// acked is the number of the last write that etcd has confirmed.
	acked atomic.Int64
}

// found creates a cluster with members on the masters that a test names by number, and waits until it is healthy.
func found(t *testing.T, numbers ...int) *cluster {
	t.Helper()
	c := prepare(t, numbers...)
	c.start()
	c.await(etcd.None, "")
	return c
}

// prepare creates a cluster of which nothing runs yet.
func prepare(t *testing.T, numbers ...int) *cluster {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("..", "..", "..", ".tools", "etcd"))
	must(t, err)
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v; `make tools` installs it", err)
	}
	c := &cluster{
		t: t, binary: binary, dir: t.TempDir(), machines: map[string]*process.Process{}, seen: map[string]bool{}, broken: map[string]bool{},
		net: byte(1 + rand.IntN(254)),
	}
	c.issue()
	c.founders = c.masters(numbers...)
	c.wanted = c.founders
	t.Cleanup(c.stop)
	return c
}

func (c *cluster) start() {
	c.end = c.keep(c.t.Context())
	c.write(c.t.Context())
	go c.run(c.t.Context())
	go c.guard(c.t.Context())
}

func (c *cluster) address(n int) string { return fmt.Sprintf("127.77.%d.%d", c.net, n) }

func name(n int) string { return fmt.Sprintf("etcd-m%02d", n) }

// volume returns the directory with all data of a machine.
func (c *cluster) volume(name string) string { return filepath.Join(c.dir, name) }

func number(name string) (n int) {
	_, _ = fmt.Sscanf(name, "etcd-m%02d", &n)
	return n
}

func (c *cluster) masters(numbers ...int) []etcd.Master {
	var all []etcd.Master
	for _, n := range numbers {
		all = append(all, etcd.Master{Name: name(n), PeerURL: "https://" + c.address(n) + ":2380"})
	}
	return all
}

// issue issues the certificates of all masters that can exist.
func (c *cluster) issue() {
	requests := []pki.Request{
		{Name: pki.EtcdCA, CommonName: "etcd", Usage: pki.UsageAuthority},
		{Name: pki.Etcd, Authority: pki.EtcdCA, CommonName: "operator", Usage: pki.UsageClient},
	}
	for n := range most {
		requests = append(requests, pki.Request{
			Name: name(n), Authority: pki.EtcdCA, CommonName: name(n), Usage: pki.UsageBoth,
			IPs: []netip.Addr{netip.MustParseAddr(c.address(n)), netip.MustParseAddr("127.0.0.1")},
		})
	}
	completed, err := pkitest.Complete(pki.Set{}, requests, pki.Embedded{Clock: clock.RealClock{}}, time.Now(), nil)
	must(c.t, err)
	c.pairs = completed.Set
	for name, pair := range c.pairs {
		must(c.t, errors.Join(
			os.WriteFile(filepath.Join(c.dir, name+".crt"), pair.Certificate, 0o600),
			os.WriteFile(filepath.Join(c.dir, name+".key"), pair.Key, 0o600)))
	}
}

// access returns access to the members of all machines that run or have ever run. The keeper has to notice the dead
// ones.
func (c *cluster) access() etcd.Access {
	a := etcd.Access{CA: c.pairs[pki.EtcdCA].Certificate, Certificate: c.pairs[pki.Etcd].Certificate, Key: c.pairs[pki.Etcd].Key}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range most {
		if _, ok := c.machines[name(n)]; ok {
			a.Endpoints = append(a.Endpoints, etcd.Endpoint{Name: name(n), Address: c.address(n) + ":2379", ServerName: c.address(n)})
		}
	}
	return a
}

// keep starts an operator and returns the function that stops it.
func (c *cluster) keep(ctx context.Context) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	k := etcd.NewKeeper(logger(c.t), nil, func() {})
	c.mu.Lock()
	c.keeper = k
	c.mu.Unlock()
	go k.Run(ctx)
	return cancel
}

// logger logs changes until the test ends. Later output would cause a panic.
func logger(t *testing.T) logr.Logger {
	var over atomic.Bool
	t.Cleanup(func() { over.Store(true) })
	return testr.NewWithInterface(quiet{t, &over}, testr.Options{})
}

type quiet struct {
	*testing.T
	over *atomic.Bool
}

// Log drops output after the end of the test.
func (q quiet) Log(args ...any) {
	if !q.over.Load() {
		q.T.Log(args...)
	}
}

// run plays the rest of the operator and the hosts. It starts machines as etcd.Begin says, and removes those of masters
// that are no longer wanted and no longer members.
func (c *cluster) run(ctx context.Context) {
	for ctx.Err() == nil {
		k := c.current()
		s := k.State()
		c.mu.Lock()
		wanted := slices.Clone(c.wanted)
		for _, m := range s.Members {
			if m.Started {
				c.seen[m.Name] = true
			}
		}
		c.mu.Unlock()
		c.retire(wanted, s)
		for _, w := range c.kept(wanted) {
			c.begin(w, s)
		}
		k.Want(c.access(), wanted)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kept returns the wanted masters, and former ones that are still members.
func (c *cluster) kept(wanted []etcd.Master) []etcd.Master {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(wanted)
	for name := range c.machines {
		if w := c.masters(number(name))[0]; !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

func (c *cluster) current() *etcd.Keeper {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keeper
}

// begin starts the machine of a master that does not run.
func (c *cluster) begin(w etcd.Master, s etcd.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if p := c.machines[w.Name]; p != nil && alive(p) {
		return
	}
	data := filepath.Join(c.volume(w.Name), etcdfiles.Data)
	_, err := os.Stat(filepath.Join(data, "member"))
	beginning, with := etcd.Begin(w, c.founders, c.seen[w.Name], len(c.seen) > 0, s)
	if err != nil && (beginning == etcd.Return || beginning == etcd.Later) || c.broken[w.Name] {
		return
	}
	state := map[etcd.Beginning]string{etcd.Join: "existing"}[beginning]
	if state == "" {
		state = "new"
	}
	var initial []string
	for _, m := range with {
		initial = append(initial, m.Name+"="+m.PeerURL)
	}
	host := c.address(number(w.Name))
	file := func(name string) string { return filepath.Join(c.dir, name) }
	p, err := process.Start(process.Command{
		Name: w.Name, Path: c.binary, Dir: c.dir,
		Args: []string{
			"--name=" + w.Name, "--data-dir=" + data, "--initial-cluster=" + strings.Join(initial, ","),
			"--initial-cluster-state=" + state, "--initial-cluster-token=etcd-test",
			"--initial-advertise-peer-urls=" + w.PeerURL, "--listen-peer-urls=" + w.PeerURL,
			"--advertise-client-urls=https://" + host + ":2379", "--listen-client-urls=https://" + host + ":2379",
			"--cert-file=" + file(w.Name+".crt"), "--key-file=" + file(w.Name+".key"), "--client-cert-auth",
			"--trusted-ca-file=" + file(pki.EtcdCA+".crt"),
			"--peer-cert-file=" + file(w.Name+".crt"), "--peer-key-file=" + file(w.Name+".key"), "--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + file(pki.EtcdCA+".crt"),
			"--heartbeat-interval=100", "--election-timeout=1000", "--feature-gates=InitialCorruptCheck=true",
			fmt.Sprintf("--quota-backend-bytes=%d", c.quota),
		},
	})
	if err != nil {
		c.t.Errorf("starting %s: %v", w.Name, err)
		return
	}
	c.machines[w.Name] = p
}

// retire ends machines whose masters are not wanted and whose members are no longer in the list.
func (c *cluster) retire(wanted []etcd.Master, s etcd.State) {
	if !s.Known() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.machines {
		named := func(w etcd.Master) bool { return w.Name == name }
		listed := func(m etcd.Member) bool { return m.Name == name || m.PeerURL == c.masters(number(name))[0].PeerURL }
		if slices.ContainsFunc(wanted, named) || slices.ContainsFunc(s.Members, listed) {
			continue
		}
		_ = p.Stop(0) // how it ends does not matter
		delete(c.machines, name)
		must(c.t, os.RemoveAll(c.volume(name)))
	}
}

// kill ends a machine as a power failure does. It comes back at once unless it is broken.
func (c *cluster) kill(n int, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken[name(n)] = broken
	if p := c.machines[name(n)]; p != nil {
		_ = p.Stop(0) // killed
	}
}

// want changes the masters of the cluster.
func (c *cluster) want(numbers ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = c.masters(numbers...)
}

// await waits until the keeper has reached an action and, if given, a reason, for the currently wanted masters.
func (c *cluster) await(action etcd.Action, reason string) etcd.State {
	c.t.Helper()
	var s etcd.State
	poll.Eventually(c.t, patience, 20*time.Millisecond, func() error {
		s = c.current().State()
		if s.Step.Action != action || reason != "" && s.Step.Reason != reason || action == etcd.None && !c.whole(s) {
			return fmt.Errorf("%s %s; the last step is %+v with members %+v", action, reason, s.Step, s.Members)
		}
		return nil
	})
	return s
}

func (c *cluster) whole(s etcd.State) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wanted {
		if !slices.ContainsFunc(s.Members, func(m etcd.Member) bool { return m.Name == w.Name && !m.Learner && m.Healthy }) {
			return false
		}
	}
	return len(s.Members) == len(c.wanted)
}

func (c *cluster) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, p := range c.machines {
		_ = p.Stop(0) // they are no longer needed
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
