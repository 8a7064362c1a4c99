package living_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/integration/lab"
	"github.com/kvm-operator/kvm-operator/integration/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// server is the API server of workload clusters. Its authority is theirs.
type server struct {
	*managementcluster.Cluster
	// Client speaks to it directly, as an administrator.
	Client client.Client

	directory      string
	ids            []string
	authority, api pki.KeyPair
}

// startServer starts an API server with a certificate for all clusters with the given ids.
func startServer(options managementcluster.Options, ids ...string) (*server, error) {
	directory, err := os.MkdirTemp("", "living-")
	if err != nil {
		return nil, err
	}
	s := &server{directory: directory, ids: ids}
	if err := s.start(options); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) start(options managementcluster.Options) (err error) {
	if s.authority, err = newAuthority(s.ids); err != nil {
		return err
	}
	if s.api, err = apiPair(s.ids, s.authority, clock.RealClock{}); err != nil {
		return err
	}
	if err := s.writePairs(); err != nil {
		return err
	}
	if options.Flags == nil {
		options.Flags = map[managementcluster.Component][]string{}
	}
	options.Dir = s.directory
	options.Flags[managementcluster.APIServer] = []string{
		"--tls-cert-file=pki/api.crt", "--tls-private-key-file=pki/api.key",
		"--service-cluster-ip-range=" + fixture.MakeCluster(s.ids[0]).Obj().Spec.Cluster.Kubernetes.API.ClusterIPRange,
		"--enable-bootstrap-token-auth=true", "--enable-admission-plugins=NodeRestriction",
	}
	if s.Cluster, err = managementcluster.Start(context.Background(), options); err != nil {
		return err
	}
	s.Client, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	return err
}

// writePairs puts the authority where package managementcluster would make one of its own.
func (s *server) writePairs() error {
	directory := filepath.Join(s.directory, "pki")
	errs := []error{os.MkdirAll(directory, 0o700)}
	for name, pair := range map[string]pki.KeyPair{"ca": s.authority, "api": s.api} {
		errs = append(errs,
			os.WriteFile(filepath.Join(directory, name+".crt"), pair.Certificate, 0o600),
			os.WriteFile(filepath.Join(directory, name+".key"), pair.Key, 0o600))
	}
	return errors.Join(errs...)
}

func (s *server) stop() error {
	var err error
	if s.Cluster != nil {
		err = s.Stop()
	}
	return errors.Join(err, os.RemoveAll(s.directory))
}

// requests are what the operator has asked of the API server, watches apart.
func (s *server) requests() ([]managementcluster.Request, error) {
	user := "api." + key.BaseDomain(fixture.MakeCluster(s.ids[0]).Obj().Spec.Cluster.Kubernetes.API.Domain)
	return s.Requests(func(r managementcluster.Request) bool { return r.User == user && r.Verb != "watch" })
}

func newAuthority(ids []string) (pki.KeyPair, error) {
	return pki.Embedded{Clock: clock.RealClock{}}.Issue(request(ids, pki.CA), pki.KeyPair{})
}

// apiPair is the certificate of an API server that answers for all the clusters, and the operator's own.
func apiPair(ids []string, authority pki.KeyPair, now clock.PassiveClock) (pki.KeyPair, error) {
	return pki.Embedded{Clock: now}.Issue(request(ids, pki.API), authority)
}

// longAgo is when a certificate was issued that has expired.
func longAgo() clock.PassiveClock {
	return testingclock.NewFakePassiveClock(time.Now().AddDate(-2, 0, 0))
}

// request is the cluster's own, with the names of the other clusters' Services.
func request(ids []string, name string) pki.Request {
	domain := lab.Settings().ClusterDomain
	var names []string
	for _, id := range ids[1:] {
		names = append(names, key.ServiceHost(key.RoleMaster, id, domain))
	}
	all := pki.Requests(fixture.MakeCluster(ids[0]).Obj().Spec.Cluster, domain, names...)
	return all[slices.IndexFunc(all, func(r pki.Request) bool { return r.Name == name })]
}

// where tells operators where the API of each cluster answers.
var where = &places{address: map[string]string{}, asked: map[string]int{}}

type places struct {
	mu sync.Mutex
	// address and asked, how often an operator has looked, are by the cluster's id.
	address map[string]string
	asked   map[string]int
}

// put moves the API of a cluster.
func (p *places) put(id, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address[id] = address
}

// answers is the address of a cluster whose master runs.
func (p *places) answers(s *cluster.Snapshot, _ string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[s.ID()]++
	if len(s.APIAddresses("")) == 0 {
		return nil
	}
	return []string{p.address[s.ID()]}
}

// passes is how often operators have gone over the cluster.
func (p *places) passes(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[id]
}

var errNotYet = fmt.Errorf("not yet")
