package state_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestEmulatedWorkersBeginOneAfterTheOther: the first of them starts beside the only master, and the message of a node
// that waits names the node it waits for.
func TestEmulatedWorkersBeginOneAfterTheOther(t *testing.T) {
	const (
		noAPI   = "its machine is emulated and is started once there is an API to join"
		forM1   = "its machine is emulated and is started once master m1 is Ready"
		forW1   = "its machine is emulated and is started once worker w1 has joined"
		nothing = ""
	)
	connected, founding := state.Workload{Connected: true}, state.Workload{Reason: "Refused"}
	ready, booting, bare := nodestep.Ready, nodestep.Booting, nodestep.NetworkMissing
	for name, test := range map[string]struct {
		acceleration v1alpha1.Acceleration
		cni          v1alpha1.CNIType
		workload     state.Workload
		masters      int // of which m1 is one, and the others are Ready
		m1, w1       nodestep.Name
		begun, late  bool // of which w2 has begun, and those before are late
		want         string
	}{
		"there is no API":                         {v1alpha1.AccelerationTCG, "", founding, 1, booting, "", false, false, noAPI},
		"no connection":                           {v1alpha1.AccelerationTCG, "", state.Workload{}, 1, "", "", false, false, nothing},
		"the only master is not Ready":            {v1alpha1.AccelerationTCG, "", connected, 1, booting, ready, false, false, nothing},
		"one of two masters is not Ready":         {v1alpha1.AccelerationTCG, "", connected, 2, booting, ready, false, false, forM1},
		"one of two masters has no network yet":   {v1alpha1.AccelerationTCG, "", connected, 2, bare, ready, false, false, forM1},
		"the network is a custom one":             {v1alpha1.AccelerationTCG, v1alpha1.CNINone, connected, 2, bare, bare, false, false, nothing},
		"the worker before boots":                 {v1alpha1.AccelerationTCG, "", connected, 1, ready, booting, false, false, forW1},
		"the worker before has not begun":         {v1alpha1.AccelerationTCG, "", connected, 1, ready, "", false, false, forW1},
		"the worker before has joined":            {v1alpha1.AccelerationTCG, "", connected, 1, ready, bare, false, false, nothing},
		"all before are Ready":                    {v1alpha1.AccelerationTCG, "", connected, 2, ready, ready, false, false, nothing},
		"it has begun":                            {v1alpha1.AccelerationTCG, "", connected, 2, booting, booting, true, false, nothing},
		"it has begun, and the API is gone":       {v1alpha1.AccelerationTCG, "", founding, 1, booting, booting, true, false, nothing},
		"the worker before does not join":         {v1alpha1.AccelerationTCG, "", connected, 2, booting, booting, false, true, nothing},
		"the worker before has hung since":        {v1alpha1.AccelerationTCG, "", connected, 1, ready, nodestep.NotReady, false, true, nothing},
		"there is no API, and the master is late": {v1alpha1.AccelerationTCG, "", founding, 1, booting, booting, false, true, noAPI},
		"KVM": {v1alpha1.AccelerationKVM, "", founding, 1, booting, booting, false, false, nothing},
		"it is not known whether it will be emulated": {v1alpha1.AccelerationAuto, "", founding, 1, booting, booting, false, false, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v1alpha1.KVMConfig{}
			config.Spec.KVM.K8sKVM.Acceleration = test.acceleration
			config.Spec.AddOns = &v1alpha1.AddOns{CNI: v1alpha1.CNI{Type: test.cni}}
			last := state.Node{ID: "w2", Role: key.RoleWorker}
			if test.begun {
				last.Deployment = &appsv1.Deployment{}
			}
			nodes := []state.Node{{ID: "m1", Role: key.RoleMaster, Step: test.m1}}
			if test.masters == 2 {
				nodes = append(nodes, state.Node{ID: "m2", Role: key.RoleMaster, Step: ready})
			}
			nodes = append(nodes, state.Node{ID: "w1", Role: key.RoleWorker, Step: test.w1}, last, state.Node{ID: "w3", Role: key.RoleWorker, Step: booting})
			for i := range nodes {
				nodes[i].Late = test.late && nodes[i].ID != "w2"
			}
			s := &state.Cluster{Config: config, Founders: []string{"m1", "m2"}, Workload: test.workload, Nodes: nodes}
			if got := s.Delayed(last); got != test.want {
				t.Errorf("it waits because %q, want %q", got, test.want)
			}
			for _, first := range s.Nodes[:2] {
				if got := s.Delayed(first); got != "" {
					t.Errorf("%s waits because %q", first.ID, got)
				}
			}
		})
	}
}

// TestEmulatedMastersBeginWithAMajority: the others wait until those are Ready, or until that has taken too long.
func TestEmulatedMastersBeginWithAMajority(t *testing.T) {
	const (
		noAPI = "its machine is emulated and is started once there is an API to join"
		forM1 = "its machine is emulated and is started once master m1 is Ready"
		forM4 = "its machine is emulated and is started once master m4 is Ready"
	)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since := func(minutes int) []corev1.Pod {
		return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))}}}
	}
	halted := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationEtcdHalted: "true"}}}
	connected, founding := state.Workload{Connected: true}, state.Workload{Reason: "Refused"}
	for name, test := range map[string]struct {
		masters    int
		workload   state.Workload
		runs       []corev1.Pod
		ready      int
		deployment *appsv1.Deployment
		committed  string
		want       []string
	}{
		"one founds":                                   {masters: 1, workload: founding},
		"three found":                                  {masters: 3, workload: founding, want: []string{"m3: " + noAPI}},
		"five found":                                   {masters: 5, workload: founding, want: []string{"m4: " + noAPI, "m5: " + noAPI}},
		"no connection":                                {masters: 3},
		"the API answers":                              {masters: 3, workload: connected, want: []string{"m3: " + forM1}},
		"a majority is Ready":                          {masters: 3, workload: connected, ready: 2},
		"a majority of five is Ready":                  {masters: 5, workload: connected, ready: 3, want: []string{"m5: " + forM4}},
		"a majority has not been there for long":       {masters: 3, workload: founding, runs: since(19), want: []string{"m3: " + noAPI}},
		"a majority does not get there":                {masters: 3, workload: founding, runs: since(21)},
		"a majority does not become Ready":             {masters: 3, workload: connected, runs: since(21)},
		"all have begun":                               {masters: 3, workload: founding, deployment: &appsv1.Deployment{}},
		"all are down for a restore":                   {masters: 3, workload: founding, deployment: halted, committed: "a.db/0"},
		"three found etcd from a snapshot":             {masters: 3, workload: founding, deployment: halted, want: []string{"m3: " + noAPI}},
		"a majority runs and is Ready with a snapshot": {masters: 3, workload: connected, ready: 2, deployment: halted},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v1alpha1.KVMConfig{}
			config.Spec.KVM.K8sKVM.Acceleration = v1alpha1.AccelerationTCG
			s := &state.Cluster{Config: config, Workload: test.workload, Restore: state.Restore{Restoration: etcd.Restoration{Committed: test.committed}}}
			for i := range test.masters {
				n := state.Node{ID: fmt.Sprintf("m%d", i+1), Role: key.RoleMaster, Step: nodestep.Booting, Deployment: test.deployment}
				if i < test.ready {
					n.Step = nodestep.Ready
				}
				s.Founders = append(s.Founders, n.ID)
				s.Nodes = append(s.Nodes, n)
			}
			for i := range test.masters/2 + 1 {
				s.Nodes[i].Pods = test.runs
			}
			for i, n := range s.Nodes {
				s.Nodes[i].Late = len(n.Pods) > 0 && n.LateAt().Before(now)
			}
			var waiting []string
			for _, n := range s.Nodes {
				if why := s.Delayed(n); why != "" {
					waiting = append(waiting, n.ID+": "+why)
				}
			}
			if !slices.Equal(waiting, test.want) {
				t.Errorf("these wait: %q, want %q", waiting, test.want)
			}
		})
	}
}

// TestEmulatedMastersJoinInEtcdsOrder: etcd adds members in the order of their names. A master whose member was added
// does not wait for one whose member is added after it has joined.
func TestEmulatedMastersJoinInEtcdsOrder(t *testing.T) {
	config := &v1alpha1.KVMConfig{}
	config.Spec.KVM.K8sKVM.Acceleration = v1alpha1.AccelerationTCG
	s := &state.Cluster{Config: config, Founders: []string{"mz"}, Workload: state.Workload{Connected: true}, Nodes: []state.Node{
		{ID: "mz", Role: key.RoleMaster, Step: nodestep.Ready, Deployment: &appsv1.Deployment{}},
		{ID: "mc", Role: key.RoleMaster}, {ID: "ma", Role: key.RoleMaster}, {ID: "w1", Role: key.RoleWorker},
	}}
	s.Etcd.Members = []etcd.Member{
		{ID: 1, Name: s.EtcdMaster("mz").Name, PeerURL: s.EtcdMaster("mz").PeerURL, Started: true, Healthy: true},
		{ID: 2, PeerURL: s.EtcdMaster("ma").PeerURL, Learner: true},
	}
	for at, begins := range []bool{true, false, true, false} {
		if why := s.Delayed(s.Nodes[at]); (why == "") != begins {
			t.Errorf("%s begins: %t, want %t: %s", s.Nodes[at].ID, !begins, begins, why)
		}
	}
}

// TestWorkersThatStartDuringARotationWaitForTheMasters: they wait so that no kubelet gets a certificate of the old CA.
func TestWorkersThatStartDuringARotationWaitForTheMasters(t *testing.T) {
	issuer := pki.Embedded{Clock: testingclock.NewFakePassiveClock(time.Now())}
	old, err := issuer.Issue(pki.Request{Name: pki.CA, CommonName: "old", Usage: pki.UsageAuthority}, pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := pki.Advance(old, func() (pki.KeyPair, error) {
		return issuer.Issue(pki.Request{Name: pki.CA, CommonName: "new", Usage: pki.UsageAuthority}, pki.KeyPair{})
	})
	if err != nil {
		t.Fatal(err)
	}
	switched, err := pki.Advance(prepared, nil)
	if err != nil {
		t.Fatal(err)
	}
	made := func(hash string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Annotations = map[string]string{key.AnnotationNodeHash: hash}
		return d
	}
	for name, test := range map[string]struct {
		authority pki.KeyPair
		hash      string // of the second master, "new" being what it is to have
		ready     bool
		begun     bool
		waits     bool
	}{
		"no CA is rotated":                         {old, "old", true, false, false},
		"the predecessor signs":                    {prepared, "old", true, false, false},
		"the successor signs, and not on a master": {switched, "old", true, false, true},
		"a master is not Ready":                    {switched, "new", false, false, true},
		"the successor signs everywhere":           {switched, "new", true, false, false},
		"the worker has begun":                     {switched, "old", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Config: &v1alpha1.KVMConfig{}, Founders: []string{"m1", "m2"}, Nodes: []state.Node{
				{ID: "m1", Role: key.RoleMaster, Deployment: made("new"), Hash: "new", Ready: true},
				{ID: "m2", Role: key.RoleMaster, Deployment: made(test.hash), Hash: "new", Ready: test.ready},
				{ID: "w1", Role: key.RoleWorker},
			}}
			s.Certificates = pki.Set{pki.CA: test.authority}
			if test.begun {
				s.Nodes[2].Deployment = made("old")
			}
			if why := s.Delayed(s.Nodes[2]); (why != "") != test.waits || test.waits && !strings.Contains(why, "master m2") {
				t.Errorf("it waits because %q", why)
			}
		})
	}
}
