package etcdguest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

const (
	// pace is how long a user waits between two writes, and answering how long for an answer.
	pace      = 200 * time.Millisecond
	answering = 3 * time.Second
	// prefix is the prefix of all keys.
	prefix = "ledger/"
)

// Ledger holds what one user has written to a cluster's etcd. The user starts as soon as there is an etcd and stops on
// Close.
type Ledger struct {
	machines *Machines
	// secret names the Secret with the user's certificate.
	secret client.ObjectKey
	id     string
	end    context.CancelFunc
	ended  chan struct{}

	mu sync.Mutex
	// confirmed is the number of the last write that etcd has confirmed.
	confirmed int64
	connected *clientv3.Client
	// introduced is the version of the Secret of the current connection.
	introduced string
	closed     bool
}

// Open starts to write to the etcd of a cluster whose KVMConfig is in the namespace.
func (m *Machines) Open(namespace, id string) *Ledger {
	ctx, end := context.WithCancel(context.Background())
	l := &Ledger{machines: m, secret: client.ObjectKey{Namespace: namespace, Name: key.SecretName(id, pki.EtcdClient)}, id: id, end: end, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.write(ctx)
	}()
	return l
}

// Close stops writing.
func (l *Ledger) Close() {
	l.end()
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.connected != nil {
		_ = l.connected.Close() // no write is in progress
	}
}

func (l *Ledger) write(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, pace) {
		c, err := l.client(ctx)
		if err != nil {
			continue // there is no etcd yet
		}
		asked, cancel := context.WithTimeout(ctx, answering)
		_, err = c.Put(asked, fmt.Sprintf("%s%09d", prefix, l.count()+1), "")
		cancel()
		if err != nil {
			l.reconnect(ctx)
			continue
		}
		l.mu.Lock()
		l.confirmed++
		l.mu.Unlock()
	}
}

// reconnect connects again with a certificate that was issued since then, as a client that gets no answers has to.
func (l *Ledger) reconnect(ctx context.Context) {
	secret := &corev1.Secret{}
	if err := l.machines.management.Get(ctx, l.secret, secret); err != nil {
		return // the next failed write tries again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connected != nil && secret.ResourceVersion != l.introduced {
		_ = l.connected.Close() // writes in progress fail, as they did before
		l.connected = nil
	}
}

// Begun reports that etcd has confirmed a write.
func (l *Ledger) Begun() bool { return l.count() > 0 }

func (l *Ledger) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed
}

// client returns the user's client with the addresses of all running members.
func (l *Ledger) client(ctx context.Context) (*clientv3.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var endpoints []string
	l.machines.mu.Lock()
	for _, c := range l.machines.all {
		if c.cluster == l.id && c.down.IsZero() {
			endpoints = append(endpoints, fmt.Sprintf("https://%s:%d", l.machines.host(c), key.PortEtcdClient))
		}
	}
	l.machines.mu.Unlock()
	if len(endpoints) == 0 || l.closed {
		return nil, errors.New("no member runs, or the ledger is closed")
	}
	if l.connected != nil {
		if !slices.Equal(l.connected.Endpoints(), endpoints) {
			l.connected.SetEndpoints(endpoints...)
		}
		return l.connected, nil
	}
	secret := &corev1.Secret{}
	if err := l.machines.management.Get(ctx, l.secret, secret); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[state.SecretKeyCertificate], secret.Data[state.SecretKeyKey])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data[state.SecretKeyCA])
	l.introduced = secret.ResourceVersion
	l.connected, err = clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}},
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(l.machines.dial),
			// By default, gRPC connects to a member that was away only every two minutes.
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: pace, Multiplier: 1.6, MaxDelay: answering}, MinConnectTimeout: answering}),
		},
	})
	return l.connected, err
}

// Check returns an error unless every confirmed write exists and nothing else.
func (l *Ledger) Check(ctx context.Context) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	least := l.count()
	have, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	// One more write may have been carried out but not confirmed.
	if most := l.count() + 1; have.Count < least || have.Count > most {
		return fmt.Errorf("the etcd of cluster %s has confirmed %d writes and has %d", l.id, least, have.Count)
	}
	return nil
}

// Fill makes etcd reject writes until the alarm is removed: a member reports that its database has reached its quota.
func (l *Ledger) Fill(ctx context.Context) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	list, err := c.MemberList(ctx)
	if err != nil {
		return err
	}
	_, err = etcdserverpb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: list.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	return err
}

// Voter is a voting member.
type Voter struct {
	// Name is the member's name. Down is how long it has not run or has been frozen. Released says that its machine was
	// released.
	Name     string
	Down     time.Duration
	Released bool
}

// Voters returns the voters that a majority has agreed on.
func (l *Ledger) Voters(ctx context.Context) ([]Voter, error) {
	c, err := l.client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var voters []Voter
	for _, m := range list.Members {
		if !m.IsLearner {
			voters = append(voters, l.machines.voter(l.id, m.Name))
		}
	}
	return voters, nil
}

// voter returns a member by its name. A member without a name has never run.
func (m *Machines) voter(id, member string) Voter {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := Voter{Name: member, Down: time.Hour}
	for _, c := range m.all {
		if c.cluster == id && pki.EtcdMember(c.node) == member {
			v.Down = 0
			switch {
			case !c.down.IsZero():
				v.Down, v.Released = time.Since(c.down), c.pod == "" && c.released
			case !c.frozen.IsZero():
				v.Down = time.Since(c.frozen)
			}
		}
	}
	return v
}
