package behaviour_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

func TestTwoClustersShareHosts(t *testing.T) {
	t.Parallel()
	a, b := makeCluster("twoa").Masters(3).Workers(3).Obj(), makeCluster("twob").Masters(3).Workers(3).Obj()
	create(t, a, b)
	theLab.AwaitReady(t, a, b)
	hosts, addresses, ports := map[string]string{}, map[string]string{}, map[int32]string{}
	both := 0
	for _, config := range []*v1alpha1.KVMConfig{a, b} {
		pods, err := listPods(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			if hosts[pod.Spec.NodeName] == config.Name {
				t.Errorf("host %s runs two machines of cluster %s", pod.Spec.NodeName, config.Name)
			}
			if hosts[pod.Spec.NodeName] != "" {
				both++
			}
			hosts[pod.Spec.NodeName] = config.Name
			if other := addresses[pod.Status.PodIP]; other != "" {
				t.Errorf("pods %s and %s share the address %s", pod.Name, other, pod.Status.PodIP)
			}
			addresses[pod.Status.PodIP] = pod.Name
		}
		service := &corev1.Service{ObjectMeta: in(config, "worker")}
		theLab.Get(t, service)
		for _, p := range service.Spec.Ports {
			if other := ports[p.NodePort]; other != "" {
				t.Errorf("clusters %s and %s share the node port %d", other, config.Name, p.NodePort)
			}
			ports[p.NodePort] = config.Name
		}
	}
	if both == 0 {
		t.Error("no host runs machines of both clusters, so nothing is proved")
	}
}

// TestBrokenClusterDelaysNoOther: the fault in the broken cluster's requests lasts until the other clusters are Ready.
// If one of them had to wait for the broken cluster, it would never become Ready.
func TestBrokenClusterDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*trouble, *http.Request, http.RoundTripper) (*http.Response, error){
		"whose requests are refused":      (*trouble).refuse,
		"whose requests are not answered": (*trouble).hang,
	} {
		id := "brk" + map[bool]string{true: "h", false: "r"}[strings.Contains(name, "answered")]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := &trouble{namespace: "/namespaces/" + id + "x/", over: make(chan struct{}), met: make(chan struct{})}
			t.Cleanup(tr.end)
			theLab.Run(t, ofShard(id), through(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(request *http.Request) (*http.Response, error) {
					if !strings.Contains(request.URL.Path, tr.namespace) {
						return next.RoundTrip(request)
					}
					return broken(tr, request, next)
				})
			}))
			patient := fixture.MakeCluster(id+"x").Workers(1).Label(shard, id).Obj()
			create(t, patient)
			<-tr.met
			var others []*v1alpha1.KVMConfig
			for i := range 5 {
				other := fixture.MakeCluster(fmt.Sprintf("%s%d", id, i)).Workers(1).Label(shard, id).Obj()
				create(t, other)
				others = append(others, other)
			}
			theLab.AwaitReady(t, others...)
			for _, other := range others {
				change(t, other, addSSHKey)
			}
			theLab.AwaitReady(t, others...)
			tr.end()
			theLab.AwaitReady(t, patient)
		})
	}
}

// trouble is the fault that the requests for one namespace meet until it ends.
type trouble struct {
	namespace string
	over      chan struct{}
	met       chan struct{}
	begin     sync.Once
	finish    sync.Once
}

func (tr *trouble) end() { tr.finish.Do(func() { close(tr.over) }) }

func (tr *trouble) ended() bool {
	tr.begin.Do(func() { close(tr.met) })
	select {
	case <-tr.over:
		return true
	default:
		return false
	}
}

func (tr *trouble) refuse(request *http.Request, next http.RoundTripper) (*http.Response, error) {
	if tr.ended() {
		return next.RoundTrip(request)
	}
	return lab.Refusal(request, http.StatusInternalServerError), nil
}

func (tr *trouble) hang(request *http.Request, next http.RoundTripper) (*http.Response, error) {
	if !tr.ended() {
		select {
		case <-tr.over:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return next.RoundTrip(request)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
