package etcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// client returns a client of a user of etcd with the addresses of all possible members.
func (c *cluster) client() *clientv3.Client {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(c.pairs[pki.EtcdCA].Certificate)
	pair, err := tls.X509KeyPair(c.pairs[pki.Etcd].Certificate, c.pairs[pki.Etcd].Key)
	must(c.t, err)
	var endpoints []string
	for n := range most {
		endpoints = append(endpoints, "https://"+c.address(n)+":2379")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, Certificates: []tls.Certificate{pair}},
	})
	must(c.t, err)
	return client
}

// write writes consecutive numbers until the test ends.
func (c *cluster) write(ctx context.Context) {
	client := c.client()
	c.t.Cleanup(func() { _ = client.Close() })
	go func() {
		for i := int64(1); ctx.Err() == nil; {
			attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := client.Put(attempt, fmt.Sprintf("n/%08d", i), "x")
			cancel()
			if err == nil {
				c.acked.Store(i)
				i++
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
}

// guard continuously compares the member list with the machines: those that run must be a quorum.
func (c *cluster) guard(ctx context.Context) {
	client := c.client()
	defer client.Close()
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		list, err := client.MemberList(attempt, clientv3.WithSerializable())
		cancel()
		if err == nil {
			c.check(list)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *cluster) check(list *clientv3.MemberListResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	voters, running := 0, 0
	for _, m := range list.Members {
		if m.IsLearner {
			continue
		}
		voters++
		for name, p := range c.machines {
			if c.masters(number(name))[0].PeerURL == m.PeerURLs[0] && alive(p) {
				running++
			}
		}
	}
	c.instants++
	// A machine that the test has killed and that is about to restart is not the operator's fault.
	if running+c.restarting() <= voters/2 && !c.mayLose.Load() && !c.over {
		c.t.Errorf("%d of %d members with a vote run: %v", running, voters, list.Members)
	}
}

func (c *cluster) restarting() int {
	n := 0
	for name, p := range c.machines {
		if !alive(p) && !c.broken[name] {
			n++
		}
	}
	return n
}

func alive(p *process.Process) bool {
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// nothingLost reads all confirmed writes and checks that the cluster accepts new ones.
func (c *cluster) nothingLost() {
	c.t.Helper()
	before := c.acked.Load()
	c.awaitWritten(before + 1)
	client := c.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	last := c.acked.Load()
	answer, err := client.Get(ctx, "n/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(c.t, err)
	there := map[string]bool{}
	for _, kv := range answer.Kvs {
		there[string(kv.Key)] = true
	}
	for i := int64(1); i <= last; i++ {
		if !there[fmt.Sprintf("n/%08d", i)] {
			c.t.Fatalf("write %d of %d was confirmed and is lost", i, last)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("%d confirmed writes are all there; the majority was there at %d instants", last, c.instants)
}
