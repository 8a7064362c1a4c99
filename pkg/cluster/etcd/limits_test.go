package etcd

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// hostileMember returns oversized responses.
type hostileMember struct {
	etcdserverpb.UnimplementedClusterServer
	etcdserverpb.UnimplementedMaintenanceServer
	list   func() []*etcdserverpb.Member
	errors []string
	header string
}

// Status returns the status of a leader.
func (h *hostileMember) Status(ctx context.Context, _ *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	if h.header != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs("a", h.header))
	}
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: 1}, Leader: 1, Errors: h.errors}, nil
}

// MemberList returns the list of the test.
func (h *hostileMember) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return &etcdserverpb.MemberListResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: 1}, Members: h.list()}, nil
}

// serve starts the member and returns how it is reached.
func (h *hostileMember) serve(t *testing.T) Access {
	t.Helper()
	issuer := pki.Embedded{Clock: clock.RealClock{}}
	authority, err := issuer.Issue(pki.Request{Name: pki.EtcdCA, CommonName: "etcd", Usage: pki.UsageAuthority}, pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issuer.Issue(pki.Request{Authority: pki.EtcdCA, CommonName: "m", DNSNames: []string{"localhost"}, Usage: pki.UsageBoth}, authority)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12})))
	etcdserverpb.RegisterClusterServer(server, h)
	etcdserverpb.RegisterMaintenanceServer(server, h)
	go func() { _ = server.Serve(listener) }() // it ends with the test
	t.Cleanup(server.Stop)
	return Access{
		Endpoints: []Endpoint{{Name: "m", Address: listener.Addr().String(), ServerName: "localhost"}},
		CA:        authority.Certificate, Certificate: pair.Certificate, Key: pair.Key,
	}
}

// members returns n members, each with the name.
func members(n int, name string) func() []*etcdserverpb.Member {
	all := make([]*etcdserverpb.Member, n)
	for i := range all {
		all[i] = &etcdserverpb.Member{ID: uint64(i + 1), Name: name, PeerURLs: []string{"https://a:2380"}}
	}
	return func() []*etcdserverpb.Member { return all }
}

// peak returns by how many bytes the heap grows at most while do runs.
func peak(do func()) int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	idle := int64(m.HeapAlloc)
	var most atomic.Int64
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), int64(m.HeapAlloc)-idle))
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	do()
	close(ended)
	<-watched
	return most.Load()
}

// TestMembersThatAnswerAtLengthAreRefused: anyone who is root on a master can respond in place of its member.
func TestMembersThatAnswerAtLengthAreRefused(t *testing.T) {
	long := strings.Repeat("x", 256<<20)
	empty := make([]*etcdserverpb.Member, 1<<20)
	for i := range empty {
		empty[i] = &etcdserverpb.Member{}
	}
	for name, test := range map[string]struct {
		member *hostileMember
		want   string
	}{
		"three members":              {&hostileMember{list: members(3, "etcd")}, ""},
		"sixteen members":            {&hostileMember{list: members(16, "etcd")}, ""},
		"more members":               {&hostileMember{list: members(17, "etcd")}, errAtLength.Error()},
		"a long name":                {&hostileMember{list: members(1, strings.Repeat("x", 600))}, errAtLength.Error()},
		"2 MiB of empty members":     {&hostileMember{list: func() []*etcdserverpb.Member { return empty }}, "larger than max"},
		"a name of 256 MiB":          {&hostileMember{list: members(1, long)}, "larger than max"},
		"alarms of 256 MiB":          {&hostileMember{list: members(1, "etcd"), errors: []string{"alarm:" + long}}, "larger than max"},
		"a header of more than that": {&hostileMember{list: members(1, "etcd"), header: long[:1<<20]}, "RST_STREAM"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(test.member.serve(t), nil)
			defer c.close()
			var o observation
			var err error
			observe := func() { o, err = c.observe(t.Context()) }
			if test.want == "" {
				observe()
				if err != nil || len(o.members) != len(test.member.list()) {
					t.Fatalf("%d members, %v", len(o.members), err)
				}
				return
			}
			// The server of this test builds its response on the same heap; how much it needs is known.
			server := int64(0)
			if strings.Contains(name, "256 MiB") {
				server = 256 << 20
			}
			grew := peak(observe)
			t.Logf("the heap grew by %d MiB, what the server itself needs included: %v", grew>>20, err)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %.300v, want one with %q", err, test.want)
			}
			if grew > server+(64<<20) {
				t.Errorf("the heap grew by %d MiB", grew>>20)
			}
		})
	}
}

// TestAlarmsAreFewAndShort: alarms are reported in conditions.
func TestAlarmsAreFewAndShort(t *testing.T) {
	var alarms []string
	for range 100 {
		alarms = append(alarms, "alarm:"+strings.Repeat("x", len(alarms)*10))
	}
	c := dial((&hostileMember{list: members(1, "etcd"), errors: alarms}).serve(t), nil)
	defer c.close()
	o, err := c.observe(t.Context())
	if err != nil || len(o.alarms) != longestList {
		t.Errorf("%d alarms, %v", len(o.alarms), err)
	}
	for _, alarm := range o.alarms {
		if len(alarm) > longestText {
			t.Errorf("an alarm has %d characters", len(alarm))
		}
	}
}
