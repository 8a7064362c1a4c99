package etcd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

const (
	// answerTimeout bounds a request to one member, and changeTimeout a change of the member list, which a majority has
	// to write.
	answerTimeout = 5 * time.Second
	changeTimeout = 15 * time.Second
	// upkeepTimeout bounds operations that read or write a whole database of several GiB.
	upkeepTimeout = 10 * time.Minute
	// silenceBeforePing and pingTimeout are the keepalive settings after which a dead connection is closed.
	silenceBeforePing = 30 * time.Second
	pingTimeout       = 10 * time.Second
	// connectTimeout bounds an attempt to connect.
	connectTimeout = 20 * time.Second
)

// Quota is the size of the database in bytes at which members reject writes: 8 GiB, the maximum that etcd's authors
// recommend.
const Quota = 8 << 30

// Endpoint is where one member serves clients.
type Endpoint struct {
	// Name is the member's name.
	Name string
	// Address is host:port.
	Address string
	// ServerName is the name that the member's certificate must contain.
	ServerName string
}

// Access says how to reach and authenticate the members of a cluster.
type Access struct {
	// Endpoints are the endpoints of the members that have an address now.
	Endpoints []Endpoint
	// CA signed the members' certificates; Certificate and Key are the operator's own. All are PEM.
	CA, Certificate, Key []byte
}

func (a Access) equal(b Access) bool {
	return slices.Equal(a.Endpoints, b.Endpoints) && bytes.Equal(a.CA, b.CA) && bytes.Equal(a.Certificate, b.Certificate) && bytes.Equal(a.Key, b.Key)
}

// tlsConfig is the TLS configuration for the connection to a member. Error texts contain nothing of a key.
func (a Access) tlsConfig(serverName string) (*tls.Config, error) {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(a.CA) {
		return nil, errors.New("the certificate of etcd's authority cannot be read")
	}
	pair, err := tls.X509KeyPair(a.Certificate, a.Key)
	if err != nil {
		return nil, errors.New("the operator's certificate for etcd and its key cannot be read or do not belong together")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: authorities, Certificates: []tls.Certificate{pair},
	}, nil
}

// clients are connections to members, one per member, because it matters which member responds.
type clients struct {
	byName map[string]*clientv3.Client
	// failures say why there is no connection to the other members.
	failures []string
}

// dial connects in the background and does not wait.
func dial(a Access, f *fence.Fence) *clients {
	c := &clients{byName: map[string]*clientv3.Client{}}
	for _, e := range a.Endpoints {
		client, err := a.client(e, f)
		if err != nil {
			c.failures = append(c.failures, e.Name+": "+err.Error())
			continue
		}
		c.byName[e.Name] = client
	}
	return c
}

// client creates the client of one member. It verifies the certificate against the host name in the endpoint,
// regardless of the ServerName in the TLS configuration; the dialer connects to the address. The fence is checked
// before every call that changes something.
func (a Access) client(e Endpoint, f *fence.Fence) (*clientv3.Client, error) {
	config, err := a.tlsConfig(e.ServerName)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + net.JoinHostPort(e.ServerName, port)}, TLS: config, Logger: zap.NewNop(),
		DialKeepAliveTime: silenceBeforePing, DialKeepAliveTimeout: pingTimeout, MaxCallRecvMsgSize: largestAnswer,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnecting(), MinConnectTimeout: connectTimeout}),
			grpc.WithChainUnaryInterceptor(fenced(f)),
			grpc.WithMaxHeaderListSize(largestAnswer), grpc.WithStaticStreamWindowSize(unread), grpc.WithStaticConnWindowSize(unread),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", e.Address)
			}),
		},
	})
}

// reconnecting is how often a client tries to reach a member that is away. By default, gRPC pauses for up to two minutes,
// by which the Keeper would see a member's return later than it looks.
func reconnecting() backoff.Config {
	c := backoff.DefaultConfig
	c.MaxDelay = longestPause
	return c
}

// reading are the calls that change nothing. Alarm is not among them because it both lists and disarms alarms.
var reading = []string{etcdserverpb.Cluster_MemberList_FullMethodName, etcdserverpb.Maintenance_Status_FullMethodName}

// fenced refuses all other calls, and retries of them, while the fence is closed.
func fenced(f *fence.Fence) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if !slices.Contains(reading, method) {
			if err := f.Check(); err != nil {
				return err
			}
		}
		return invoke(ctx, method, request, reply, c, options...)
	}
}

func (c *clients) close() {
	for _, client := range c.byName {
		_ = client.Close() // no call is in flight
	}
}

// observation is what the members report.
type observation struct {
	members []Member
	// at is the client of each member that responded.
	at map[uint64]*clientv3.Client
	// alarms are the alarms that members raised: NOSPACE, CORRUPT.
	alarms []string
	// databases are those of the members that responded, and revision is the one that all of them have reached.
	databases []Database
	revision  int64
}

// full reports whether etcd rejects writes because a database is full.
func (o observation) full() bool {
	return slices.ContainsFunc(o.alarms, func(text string) bool { return strings.Contains(text, etcdserverpb.AlarmType_NOSPACE.String()) })
}

// errNoLeader says that members respond, but none of them knows a leader, so there is no quorum.
var errNoLeader = errors.New("no member knows a leader")

// observe asks every member for its status, all in parallel, and one healthy member for the member list, which a
// majority confirms. If there is no such list, the error says what each member responded; it is errNoLeader if there is
// no majority.
func (c *clients) observe(ctx context.Context) (observation, error) {
	told, failures := c.statuses(ctx)
	failures = append(failures, c.failures...)
	told, err := ofOne(told)
	if err != nil {
		return observation{}, err
	}
	for _, s := range told {
		if s.Leader == 0 || s.IsLearner {
			continue
		}
		o, err := c.list(ctx, s, told)
		if err == nil {
			return o, nil
		}
		failures = append(failures, s.name+": "+cause(err))
	}
	led := false
	for _, s := range told {
		led = led || s.Leader != 0
		if s.Leader == 0 {
			failures = append(failures, s.name+": it has no leader")
		}
	}
	slices.Sort(failures)
	switch {
	case len(failures) == 0:
		return observation{}, errors.New("no member has an address")
	case len(told) > 0 && !led:
		return observation{}, fmt.Errorf("%w: %s", errNoLeader, strings.Join(failures, "; "))
	}
	return observation{}, errors.New(strings.Join(failures, "; "))
}

// ofOne returns the members of one cluster: the only cluster that has a leader. A founding member that lost its data
// founded another cluster and can do nothing there. If several clusters have a leader, or none has, it is unknown which
// one is right.
func ofOne(told []status) ([]status, error) {
	led := map[uint64]bool{}
	for _, s := range told {
		if s.Leader != 0 {
			led[s.Header.GetClusterId()] = true
		}
	}
	others := slices.DeleteFunc(slices.Clone(told), func(s status) bool { return s.Header.GetClusterId() == told[0].Header.GetClusterId() })
	switch {
	case len(others) == 0:
		return told, nil
	case len(led) != 1:
		return nil, fmt.Errorf("%s and %s are members of different clusters", told[0].name, others[0].name)
	}
	return slices.DeleteFunc(slices.Clone(told), func(s status) bool { return !led[s.Header.GetClusterId()] }), nil
}

type status struct {
	*clientv3.StatusResponse
	name   string
	client *clientv3.Client
}

// statuses returns the status of each member that responds, by name, and the failures of the others.
func (c *clients) statuses(ctx context.Context) (told []status, failures []string) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, client := range c.byName {
		all.Go(func() {
			s, err := client.Status(ctx, client.Endpoints()[0])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, name+": "+cause(err))
				return
			}
			told = append(told, status{StatusResponse: s, name: name, client: client})
		})
	}
	all.Wait()
	slices.SortFunc(told, func(a, b status) int { return strings.Compare(a.name, b.name) })
	return told, failures
}

// list asks one member for the member list and adds the status that each member reported.
func (c *clients) list(ctx context.Context, from status, told []status) (observation, error) { //nolint:gocognit // one pass over the members
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	response, err := from.client.MemberList(ctx)
	if err != nil {
		return observation{}, err
	}
	if err := checkList(response.Members); err != nil {
		return observation{}, err
	}
	o := observation{at: map[uint64]*clientv3.Client{}, revision: from.Header.GetRevision()}
	for _, listed := range response.Members {
		m := Member{ID: listed.ID, Name: listed.Name, Started: len(listed.ClientURLs) > 0, Learner: listed.IsLearner}
		if len(listed.PeerURLs) > 0 {
			m.PeerURL = listed.PeerURLs[0]
		}
		if s := statusOf(told, m.ID); s != nil {
			m.Healthy, m.Leader = s.Leader != 0 && !corrupt(s.Errors), s.Leader == m.ID
			o.at[m.ID] = s.client
			o.revision = min(o.revision, s.Header.GetRevision())
			o.databases = append(o.databases, Database{Member: m, Size: s.DbSize, InUse: s.DbSizeInUse, Quota: cmp.Or(s.DbSizeQuota, Quota)})
			for _, text := range s.Errors {
				// Each member reports the alarms of all members, and other errors in other words.
				if strings.Contains(text, "alarm:") && !slices.Contains(o.alarms, text) && len(text) <= longestText && len(o.alarms) < longestList {
					o.alarms = append(o.alarms, text)
				}
			}
		}
		o.members = append(o.members, m)
	}
	return o, nil
}

func statusOf(told []status, id uint64) *status {
	for i := range told {
		if told[i].Header.GetMemberId() == id {
			return &told[i]
		}
	}
	return nil
}

// corrupt reports whether a member's data differs from that of the others, so that its responses cannot be trusted.
// Because each member reports the alarms of all members, it is not known which one is corrupt; then none counts as
// healthy.
func corrupt(errors []string) bool {
	return slices.ContainsFunc(errors, func(text string) bool { return strings.Contains(text, etcdserverpb.AlarmType_CORRUPT.String()) })
}

// do carries out a step. A lost reply is harmless, because the next observation shows the result.
func (o observation) do(ctx context.Context, step Step) error {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(step.Action))
	defer cancel()
	client := o.voter()
	if step.Action == MoveLeader || step.Action == Defragment {
		client = o.at[step.Member.ID]
	}
	if client == nil {
		return errors.New("no member answers")
	}
	var err error
	switch step.Action {
	case Add:
		_, err = client.MemberAddAsLearner(ctx, []string{step.Master.PeerURL})
	case Promote:
		_, err = client.MemberPromote(ctx, step.Member.ID)
	case Remove:
		_, err = client.MemberRemove(ctx, step.Member.ID)
	case MoveLeader:
		_, err = client.MoveLeader(ctx, step.Successor.ID)
	case Compact:
		_, err = client.Compact(ctx, o.revision, clientv3.WithCompactPhysical())
	case Defragment:
		_, err = client.Defragment(ctx, client.Endpoints()[0])
	case Disarm:
		err = disarm(ctx, client)
	case None, Wait:
	}
	return err
}

// disarm disarms NOSPACE alarms and no others.
func disarm(ctx context.Context, client *clientv3.Client) error {
	all, err := client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range all.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
				return err
			}
		}
	}
	return nil
}

func timeoutOf(a Action) time.Duration {
	if a == Compact || a == Defragment {
		return upkeepTimeout
	}
	return changeTimeout
}

// voter returns the client of a healthy voting member. Learners do not accept changes.
func (o observation) voter() *clientv3.Client {
	for _, m := range o.members {
		if m.Healthy && !m.Learner {
			return o.at[m.ID]
		}
	}
	return nil
}

// cause returns the text of an error in a form that stays the same while the error does.
func cause(err error) string {
	said := strings.Trim(strings.ReplaceAll(text.Steady(err.Error()), context.DeadlineExceeded.Error(), ""), ": ")
	return cmp.Or(said, "it does not answer in time")
}
