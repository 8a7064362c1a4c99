package outage_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/service"
)

func TestOtherWriterInALoopHoldsNothingUp(t *testing.T) {
	t.Parallel()
	operator := theLab.Run(t, ofShard("conflict"))
	config := makeCluster("busy1", "conflict")
	theLab.Create(t, config)
	stop := make(chan struct{})
	done := make(chan int)
	go func() { done <- scribble(t, config, stop) }()
	theLab.AwaitReady(t, config)
	lab.Change(t, theLab, config, roll)
	theLab.AwaitReady(t, config)
	close(stop)
	rounds := <-done
	conflicts := 0
	for _, r := range operator.Requests.Of("busy1") {
		if r.Status == http.StatusConflict {
			conflicts++
		}
	}
	t.Logf("%d rounds of the other writer, %d conflicts", rounds, conflicts)
	if rounds == 0 || conflicts == 0 {
		t.Error("the other writer caused no conflict, so the test proves nothing")
	}
	marked := 0
	for _, object := range theLab.Objects(t, config) {
		if object.GetLabels()["example.org/round"] != "" {
			marked++
		}
	}
	if all := len(theLab.Objects(t, config)); marked < all/2 {
		t.Errorf("only %d of %d objects kept the labels of the other writer", marked, all)
	}
	onePodEach(t, config)
}

// scribble labels the KVMConfig and every object of the cluster repeatedly.
func scribble(t *testing.T, config *v1alpha1.KVMConfig, stop <-chan struct{}) int {
	for round := 1; ; round++ {
		for _, object := range append(theLab.Objects(t, config), config.DeepCopy()) {
			select {
			case <-stop:
				return round
			default:
			}
			patch := []byte(fmt.Sprintf(`{"metadata":{"labels":{"example.org/round":"%d"}}}`, round))
			err := theLab.Client.Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", patch))
			if client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	}
}

func TestStormOfTooManyRequestsIsAnsweredWithFewer(t *testing.T) {
	t.Parallel()
	var storm atomic.Bool
	operator := theLab.Run(t, ofShard("storm"), func(c *service.Config) {
		c.REST = rest.CopyConfig(c.REST)
		c.REST.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if storm.Load() && request.URL.Query().Get("watch") == "" {
					return lab.Refusal(request, http.StatusTooManyRequests), nil
				}
				return next.RoundTrip(request)
			})
		})
	})
	config := makeCluster("storm1", "storm")
	theLab.Create(t, config)
	exists(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "storm1", Name: "storm1"}})
	storm.Store(true)
	operator.Requests.Reset()
	pass(t, operator, length)
	refused := len(operator.Requests.All())
	storm.Store(false)
	t.Logf("%d requests during the storm", refused)
	// Attempts start 0.1, 0.3, 0.7, 1.5 and 3.1 seconds after the first one. Each sends only as many requests as there
	// are objects to create.
	if most := 6 * 30; refused == 0 || refused > most {
		t.Errorf("%d requests during the storm, want some and at most %d", refused, most)
	}
	theLab.AwaitReady(t, config)
	onePodEach(t, config)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
