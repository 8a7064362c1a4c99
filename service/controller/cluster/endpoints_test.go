package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// behind returns the Ready addresses of each Service from the EndpointSlices, as "<name> <family>: <addresses>".
func behind(t *testing.T, s scenario, w world) map[string]string {
	t.Helper()
	desired, err := build(t, s.snapshot(t, w), "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, object := range desired.Objects {
		switch o := object.(type) {
		case *discoveryv1.EndpointSlice:
			var addresses []string
			for _, e := range o.Endpoints {
				if *e.Conditions.Ready {
					addresses = append(addresses, e.Addresses...)
				}
			}
			got[fmt.Sprintf("%s %s", o.Labels[key.LabelServiceName], o.AddressType)] = strings.Join(addresses, " ")
		case *corev1.Endpoints:
			var addresses []string
			for _, subset := range o.Subsets {
				for _, a := range subset.Addresses {
					addresses = append(addresses, a.IP)
				}
			}
			got[o.Name+" mirror"] = strings.Join(addresses, " ")
		}
	}
	return got
}

// TestPodsBehindTheServices: only node pods that are Ready and not terminating, so that a draining worker gets no new
// traffic; members of etcd as soon as they have an address.
func TestPodsBehindTheServices(t *testing.T) {
	const master, worker0, worker1 = "10.244.0.1", "10.244.0.2", "10.244.0.3"
	for name, test := range map[string]struct {
		change func(*world)
		want   [3]string // master, worker, member m0aaa
		ipv6   string
	}{
		"all nodes serve":         {func(*world) {}, [3]string{master, worker0 + " " + worker1, master}, ""},
		"no pod exists":           {func(w *world) { w.Pods = nil }, [3]string{"", "", ""}, ""},
		"a worker is not Ready":   {func(w *world) { notReady(&w.Pods[1]) }, [3]string{master, worker1, master}, ""},
		"a worker goes":           {func(w *world) { terminating(&w.Pods[2]) }, [3]string{master, worker0, master}, ""},
		"the master is not Ready": {func(w *world) { notReady(&w.Pods[0]) }, [3]string{"", worker0 + " " + worker1, master}, ""},
		"the master goes":         {func(w *world) { terminating(&w.Pods[0]) }, [3]string{"", worker0 + " " + worker1, master}, ""},
		"a worker without address": {
			func(w *world) { w.Pods[1].Status.PodIP = "" }, [3]string{master, worker1, master}, "",
		},
		"the master's successor waits for its disks": {
			func(w *world) {
				old := w.Pods[0]
				old.Name, old.CreationTimestamp.Time, old.Status.PodIP = "old", now.Add(-1), "10.244.0.9"
				terminating(&old)
				notReady(&w.Pods[0])
				w.Pods = append(w.Pods, old)
			},
			[3]string{"", worker0 + " " + worker1, "10.244.0.9"}, "",
		},
		"the master's old pod has ended": {
			func(w *world) {
				old := w.Pods[0]
				old.Name, old.CreationTimestamp.Time, old.Status.PodIP, old.Status.Phase = "old", now.Add(-1), "10.244.0.9", corev1.PodSucceeded
				terminating(&old)
				w.Pods = append(w.Pods, old)
			},
			[3]string{master, worker0 + " " + worker1, master}, "",
		},
		"a worker with IPv6": {
			func(w *world) { w.Pods[1].Status.PodIP = "fd00::2" }, [3]string{master, worker1, master}, "fd00::2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := simple()
			s.config = fixture.MakeCluster("ab1cd").Workers(2).Obj()
			w := s.running(t)
			test.change(&w)
			want := map[string]string{
				"master IPv4": test.want[0], "worker IPv4": test.want[1], "master-m0aaa IPv4": test.want[2],
				"master mirror": test.want[0], "worker mirror": test.want[1],
			}
			if test.ipv6 != "" {
				want["worker IPv6"], want["worker mirror"] = test.ipv6, test.ipv6+" "+test.want[1]
			}
			if diff := cmp.Diff(want, behind(t, s, w)); diff != "" {
				t.Errorf("others are behind the Services (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEndpointsNameTheirPods: endpoints refer to their pods, as those of Kubernetes' own controllers do, and opt out of
// mirroring.
func TestEndpointsNameTheirPods(t *testing.T) {
	s := simple()
	desired, err := build(t, s.snapshot(t, s.running(t)), "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	reference := &corev1.ObjectReference{Kind: "Pod", Name: "worker-w0aaa-574dd54b85-x2x2x", Namespace: "ab1cd", UID: "worker-w0aaa-uid"}
	slice, mirror := desired.Objects[1].(*discoveryv1.EndpointSlice), desired.Objects[3].(*corev1.Endpoints)
	got := []any{
		slice.Endpoints[0].TargetRef, *slice.Endpoints[0].NodeName, *slice.Endpoints[0].Conditions.Ready, slice.Labels["endpointslice.kubernetes.io/managed-by"],
		mirror.Subsets[0].Addresses[0].TargetRef, *mirror.Subsets[0].Addresses[0].NodeName, mirror.Labels["endpointslice.kubernetes.io/skip-mirror"],
	}
	want := []any{reference, "host-worker-w0aaa", true, "kvm-operator.giantswarm.io", reference, "host-worker-w0aaa", "true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
