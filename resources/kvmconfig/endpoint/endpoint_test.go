package endpoint_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/endpoint"
)

func slice(service string, uid types.UID, terminating *bool) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{key.LabelServiceName: service}},
		Endpoints: []discoveryv1.Endpoint{
			{TargetRef: &corev1.ObjectReference{UID: uid}, Conditions: discoveryv1.EndpointConditions{Terminating: terminating}},
		},
	}
}

// TestADrainWaitsForTheEndpoints: for a few seconds, a pod is not drained while Services send traffic to it.
func TestADrainWaitsForTheEndpoints(t *testing.T) {
	worker := slice(key.RoleWorker, "1", ptr.To(false))
	for name, test := range map[string]struct {
		slices  []discoveryv1.EndpointSlice
		machine drain.Machine
		waits   bool
	}{
		"no slice":                        {nil, drain.Machine{}, false},
		"behind the workers' Service":     {[]discoveryv1.EndpointSlice{worker}, drain.Machine{}, true},
		"behind the masters' Service":     {[]discoveryv1.EndpointSlice{slice(key.RoleMaster, "1", nil)}, drain.Machine{}, true},
		"behind the published Service":    {[]discoveryv1.EndpointSlice{slice(key.PublishedService, "1", nil)}, drain.Machine{}, true},
		"as a member of etcd":             {[]discoveryv1.EndpointSlice{slice("master-m1", "1", nil)}, drain.Machine{}, false},
		"another pod":                     {[]discoveryv1.EndpointSlice{slice(key.RoleWorker, "2", nil)}, drain.Machine{}, false},
		"marked as terminating":           {[]discoveryv1.EndpointSlice{slice(key.RoleMaster, "1", ptr.To(true))}, drain.Machine{}, false},
		"for almost five seconds":         {[]discoveryv1.EndpointSlice{worker}, drain.Machine{Waited: 4 * time.Second}, true},
		"for five seconds":                {[]discoveryv1.EndpointSlice{worker}, drain.Machine{Waited: 5 * time.Second}, false},
		"its host shuts down":             {[]discoveryv1.EndpointSlice{worker}, drain.Machine{HostShutsDown: true}, false},
		"its machine has stopped":         {[]discoveryv1.EndpointSlice{worker}, drain.Machine{Stopped: true}, false},
		"its machine has been released":   {[]discoveryv1.EndpointSlice{worker}, drain.Machine{Released: drain.Drained}, false},
		"a snapshot is restored":          {[]discoveryv1.EndpointSlice{worker}, drain.Machine{Restoring: true}, false},
		"its grace period is over":        {[]discoveryv1.EndpointSlice{worker}, drain.Machine{Waited: 2, Grace: 1}, false},
		"its cluster is deleted":          {[]discoveryv1.EndpointSlice{worker}, drain.Machine{ClusterGone: true}, false},
		"behind one Service, not another": {[]discoveryv1.EndpointSlice{slice(key.RoleMaster, "2", nil), worker}, drain.Machine{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &drain.State{
				Pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", DeletionTimestamp: &metav1.Time{}}},
				Slices: test.slices, Machine: test.machine,
			}
			outcome, err := endpoint.New().EnsureCreated(t.Context(), s)
			if waits := outcome.Reason == "GetsTraffic"; err != nil || waits != test.waits {
				t.Errorf("it waits: %t (%v), want %t", waits, err, test.waits)
			}
		})
	}
}

// TestAPodThatStaysIsNotWaitedFor: a pod that is not deleted may get traffic for as long as it runs. A wrong
// condition is corrected meanwhile.
func TestAPodThatStaysIsNotWaitedFor(t *testing.T) {
	s := &drain.State{
		Pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}},
		Slices: []discoveryv1.EndpointSlice{slice(key.RoleWorker, "1", nil)}, Machine: drain.Machine{HostStays: true},
	}
	if outcome, err := endpoint.New().EnsureCreated(t.Context(), s); err != nil || outcome.Reason == "GetsTraffic" {
		t.Errorf("it ends with %+v (%v)", outcome, err)
	}
}
