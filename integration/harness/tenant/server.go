// Package tenant runs the API servers of workload clusters for tests. They are real, and many clusters may share one.
package tenant

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Server is the API server of workload clusters. Its CA is also theirs.
type Server struct {
	*managementcluster.Cluster
	// Client is an administrator's client without a cache.
	Client client.Client
	// IDs are the ids of the clusters.
	IDs []string
	// Authority is the CA of the clusters, and API is the certificate of their API server.
	Authority, API pki.KeyPair

	directory string
	player    *player
}

// Start starts an API server with a certificate for all clusters with the given ids. Close it when done.
func Start(options managementcluster.Options, ids ...string) (*Server, error) {
	directory, err := os.MkdirTemp("", "living-")
	if err != nil {
		return nil, err
	}
	s := &Server{directory: directory, IDs: ids}
	if err := s.start(options); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) start(options managementcluster.Options) (err error) {
	if s.Authority, err = NewAuthority(s.IDs); err != nil {
		return err
	}
	if s.API, err = APIPair(s.IDs, s.Authority, clock.RealClock{}); err != nil {
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
		"--service-cluster-ip-range=" + fixture.MakeCluster(s.IDs[0]).Obj().Spec.Cluster.Kubernetes.API.ClusterIPRange,
		"--enable-bootstrap-token-auth=true", "--enable-admission-plugins=NodeRestriction",
	}
	if s.Cluster, err = managementcluster.Start(context.Background(), options); err != nil {
		return err
	}
	if s.Client, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme.Scheme}); err != nil {
		return err
	}
	s.player = play(s.Client)
	return nil
}

// writePairs writes the CA to where package managementcluster would create its own.
func (s *Server) writePairs() error {
	directory := filepath.Join(s.directory, "pki")
	errs := []error{os.MkdirAll(directory, 0o700)}
	for name, pair := range map[string]pki.KeyPair{"ca": s.Authority, "api": s.API} {
		errs = append(errs,
			os.WriteFile(filepath.Join(directory, name+".crt"), pair.Certificate, 0o600),
			os.WriteFile(filepath.Join(directory, name+".key"), pair.Key, 0o600))
	}
	return errors.Join(errs...)
}

// Close stops the API server and removes what it has stored.
func (s *Server) Close() error {
	var err error
	if s.player != nil {
		s.player.stop()
	}
	if s.Cluster != nil {
		err = s.Stop()
	}
	return errors.Join(err, os.RemoveAll(s.directory))
}

// Asked returns the requests of the operator, without watches.
func (s *Server) Asked() ([]managementcluster.Request, error) {
	user := "api." + key.BaseDomain(fixture.MakeCluster(s.IDs[0]).Obj().Spec.Cluster.Kubernetes.API.Domain)
	return s.Requests(func(r managementcluster.Request) bool { return r.User == user && r.Verb != "watch" })
}

// Declare creates a KVMConfig of one of the clusters in the management cluster, and its certificates, which are those
// of this server.
func (s *Server) Declare(ctx context.Context, management client.Client, config *v1alpha1.KVMConfig) error {
	id := config.Spec.Cluster.ID
	for name, pair := range map[string]pki.KeyPair{pki.CA: s.Authority, pki.API: s.API} {
		err := management.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: config.Namespace, Name: key.SecretName(id, name),
				Labels: map[string]string{key.LabelGSCluster: id, key.LabelCertificate: name},
			},
			Data: map[string][]byte{
				state.SecretKeyCA: s.Authority.Certificate, state.SecretKeyCertificate: pair.Certificate, state.SecretKeyKey: pair.Key,
			},
		})
		if err != nil {
			return err
		}
	}
	return management.Create(ctx, config)
}

// NewAuthority creates a CA for the clusters.
func NewAuthority(ids []string) (pki.KeyPair, error) {
	return pki.Embedded{Clock: clock.RealClock{}}.Issue(request(ids, pki.CA), pki.KeyPair{})
}

// APIPair returns the certificate of an API server for all the clusters, which is also the operator's client
// certificate.
func APIPair(ids []string, authority pki.KeyPair, now clock.PassiveClock) (pki.KeyPair, error) {
	// The original operator's API pair was also its client certificate.
	api := request(ids, pki.API)
	api.Organizations, api.Usage = append(api.Organizations, pki.Masters), pki.UsageBoth
	return pki.Embedded{Clock: now}.Issue(api, authority)
}

// request returns the cluster's own request, with the names of the other clusters' Services.
func request(ids []string, name string) pki.Request {
	domain := lab.Settings().ClusterDomain
	var names []string
	for _, id := range ids[1:] {
		names = append(names, key.ServiceHost(key.RoleMaster, id, domain))
	}
	all := pki.Requests(fixture.MakeCluster(ids[0]).Obj().Spec.Cluster, domain, names...)
	return all[slices.IndexFunc(all, func(r pki.Request) bool { return r.Name == name })]
}

// Places have the address of each cluster's API for operators. The zero value has none.
type Places struct {
	mu sync.Mutex
	// address and asked, which counts the operators' queries, are by the cluster's id.
	address map[string]string
	asked   map[string]int
}

// Put sets the address of a cluster's API.
func (p *Places) Put(id, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == nil {
		p.address, p.asked = map[string]string{}, map[string]int{}
	}
	p.address[id] = address
}

// Answers returns the address of a cluster whose master runs.
func (p *Places) Answers(s *state.Cluster, _ string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != nil {
		p.asked[s.ID()]++
	}
	if len(s.APIAddresses("")) == 0 {
		return nil
	}
	return []string{p.address[s.ID()]}
}

// Passes returns how often operators have reconciled the cluster.
func (p *Places) Passes(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[id]
}
