package etcd

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestWhoIsOfAnotherClusterIsLeftOut: members of other clusters are left out if only one cluster has a leader.
// Otherwise no cluster is assumed to be the right one.
func TestWhoIsOfAnotherClusterIsLeftOut(t *testing.T) {
	of := func(name string, cluster, leader uint64) status {
		return status{name: name, StatusResponse: &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: cluster}, Leader: leader}}
	}
	for name, test := range map[string]struct {
		told []status
		want string
	}{
		"no member answers":                               {nil, ""},
		"all are of one":                                  {[]status{of("a", 1, 7), of("b", 1, 7)}, "a b"},
		"no member has a leader":                          {[]status{of("a", 1, 0), of("b", 1, 0)}, "a b"},
		"one has founded another cluster":                 {[]status{of("a", 1, 0), of("b", 2, 7), of("c", 2, 7)}, "b c"},
		"one has founded another cluster, and one is cut": {[]status{of("a", 1, 7), of("b", 2, 0), of("c", 1, 0)}, "a c"},
		"two clusters, and no leader":                     {[]status{of("a", 1, 0), of("b", 2, 0)}, "a and b are members of different clusters"},
		"two clusters, each with a leader":                {[]status{of("a", 1, 7), of("b", 1, 7), of("c", 2, 9)}, "a and c are members of different clusters"},
	} {
		t.Run(name, func(t *testing.T) {
			told, err := ofOne(test.told)
			var names []string
			for _, s := range told {
				names = append(names, s.name)
			}
			if err != nil {
				names = []string{err.Error()}
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
