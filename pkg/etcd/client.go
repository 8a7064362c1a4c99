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
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/kvm-operator/kvm-operator/pkg/fence"
)

const (
	// answerTimeout bounds a question to one member, and changeTimeout a change of the list, which a majority has to write.
	answerTimeout = 5 * time.Second
	changeTimeout = 15 * time.Second
	// upkeepTimeout is for what reads or writes a whole database of some GiB.
	upkeepTimeout = 10 * time.Minute
	// silenceBeforePing and pingTimeout are how soon a connection that nothing comes through any more is given up.
	silenceBeforePing = 30 * time.Second
	pingTimeout       = 10 * time.Second
)

// Quota is the size of the database in bytes at which members refuse writes: 8 GiB, the most that etcd's authors advise.
const Quota = 8 << 30

// Endpoint is where one member answers clients.
type Endpoint struct {
	// Name is the member's.
	Name string
	// Address is host:port.
	Address string
	// ServerName is what the member's certificate must carry.
	ServerName string
}

// Access is how a cluster's members are reached and trusted.
type Access struct {
	// Endpoints are those of the members that have an address now.
	Endpoints []Endpoint
	// CA is the authority of the members' certificates; Certificate and Key are the operator's own. All PEM.
	CA, Certificate, Key []byte
}

func (a Access) equal(b Access) bool {
	return slices.Equal(a.Endpoints, b.Endpoints) && bytes.Equal(a.CA, b.CA) && bytes.Equal(a.Certificate, b.Certificate) && bytes.Equal(a.Key, b.Key)
}

// tlsConfig is that of a member's connection. The text of errors holds nothing of a key.
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

// clients are connections to members, one each: which of them answers is what is asked.
type clients struct {
	byName map[string]*clientv3.Client
	// failures are why there is no connection to others.
	failures []string
}

// dial connects in the background; nothing is waited for.
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

// client is that of one member. It checks certificates against the name in the endpoint, whatever TLS says; the way there is the
// address. The fence is asked before anything is changed.
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
			grpc.WithChainUnaryInterceptor(fenced(f)),
			grpc.WithMaxHeaderListSize(largestAnswer), grpc.WithStaticStreamWindowSize(unread), grpc.WithStaticConnWindowSize(unread),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", e.Address)
			}),
		},
	})
}

// reading are the calls that change nothing. Alarm is not among them: it lists alarms and takes them back.
var reading = []string{etcdserverpb.Cluster_MemberList_FullMethodName, etcdserverpb.Maintenance_Status_FullMethodName}

// fenced refuses other calls, and further attempts at one, while the fence is closed.
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
		_ = client.Close() // nothing is under way
	}
}

// observation is what the members tell.
type observation struct {
	members []Member
	// at is the client of each member that answered.
	at map[uint64]*clientv3.Client
	// alarms are what members warn of: NOSPACE, CORRUPT.
	alarms []string
	// databases are those of the members that answered, and revision is what all of them have reached.
	databases []Database
	revision  int64
}

// full says that etcd takes no writes for want of room.
func (o observation) full() bool {
	return slices.ContainsFunc(o.alarms, func(text string) bool { return strings.Contains(text, etcdserverpb.AlarmType_NOSPACE.String()) })
}

// errNoLeader: members answer, and none of them knows a leader, which a majority would elect.
var errNoLeader = errors.New("no member knows a leader")

// observe asks every member how it is, all at once, and one that is well for the list, which a majority confirms. The error
// says what each answered when there is no such list; it is errNoLeader when there is no majority.
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
			failures = append(failures, s.name+": it knows no leader")
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

// ofOne are those that are members of one cluster: that of which alone somebody knows a leader. A founder that has lost its data has begun
// another one, and can do nothing there. Where several have leaders, or none, nobody here can know which is the right one.
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

// statuses are those of the members that answer, by name, and what went wrong with the others.
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

// list asks one member for the list and adds what all of them tell of themselves.
func (c *clients) list(ctx context.Context, from status, told []status) (observation, error) { //nolint:gocognit // one pass over what members say
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
				// Each tells of the alarms of all, and of other trouble in other words.
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

// corrupt says whether a member's data differs from that of others: what it answers is not to be believed. Members tell of
// the alarms of all, so the one that is meant is not known better than this; then none is taken for well.
func corrupt(errors []string) bool {
	return slices.ContainsFunc(errors, func(text string) bool { return strings.Contains(text, etcdserverpb.AlarmType_CORRUPT.String()) })
}

// do carries a step out. A reply that is lost does no harm: the next observation shows what came of it.
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

// disarm takes back the alarms of databases that were full, and no others.
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

// voter is the client of a member that is well and has a vote; learners take no orders.
func (o observation) voter() *clientv3.Client {
	for _, m := range o.members {
		if m.Healthy && !m.Learner {
			return o.at[m.ID]
		}
	}
	return nil
}

// volatile is what differs from try to try in the text of an error: how often it was tried, own ports, the time.
var volatile = regexp.MustCompile(`[0-9.:\[\]a-f]+->|, current time [^"]* is|connection error: desc = |rpc error: code = \w+ desc = |context deadline exceeded|latest balancer error: |received context error while waiting for new LB policy update: |"`)

// cause is what went wrong in words that stay the same while it does.
func cause(err error) string {
	text := strings.Trim(volatile.ReplaceAllString(err.Error(), ""), ": ")
	if text == "" {
		return "it does not answer in time"
	}
	return text
}
