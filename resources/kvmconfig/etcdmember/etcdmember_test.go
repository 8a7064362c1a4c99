package etcdmember

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

func TestDecide(t *testing.T) {
	member := []etcd.Member{{ID: 1, Name: "etcd-m1", Healthy: true}}
	unreachable := etcd.State{Step: etcd.Step{Action: etcd.Wait, Reason: etcd.ReasonUnreachable, Message: "no member answers"}}
	at := func(action etcd.Action, reason string) etcd.State {
		return etcd.State{Members: member, Step: etcd.Step{Action: action, Reason: reason, Message: "because"}}
	}
	full := at(etcd.None, "")
	full.Alarms = []string{"memberID:1 alarm:NOSPACE"}
	stuck := full
	stuck.Step = etcd.Step{Action: etcd.Wait, Reason: etcd.ReasonFull, Message: "delete objects"}
	for name, test := range map[string]struct {
		etcd     etcd.State
		founders []string
		retiring int
		held     []string
		gone     bool // the API server does not answer, and etcd has run
		ran      bool // etcd was reached before
		want     string
	}{
		"no member has been asked yet":               {founders: []string{"m1"}, want: "Unknown NotAsked: the members of etcd have not been asked yet"},
		"no member answers":                          {etcd: unreachable, founders: []string{"m1"}, ran: true, want: "Done"},
		"no member has answered since it began":      {etcd: unreachable, founders: []string{"m1"}, want: "Wait Unreachable: no member answers"},
		"no member answers, not even the API server": {etcd: unreachable, founders: []string{"m1"}, gone: true, want: "Wait Unreachable: no member answers"},
		"no member is queried, and no API server is": {founders: []string{"m1"}, gone: true, want: "Done"},
		"no member answers, and a master is added":   {etcd: unreachable, founders: []string{"m0"}, want: "Wait Unreachable: no member answers"},
		"no member answers, and a master goes":       {etcd: unreachable, founders: []string{"m1"}, retiring: 1, want: "Wait Unreachable: no member answers"},
		"a founder was removed from the spec": {etcd: unreachable, founders: []string{"m1", "m2", "m3"}, held: []string{"m2", "m3"},
			want: "Wait Founding: etcd is being founded by masters m1, m2, m3; masters m2, m3 were removed from the spec and are kept until it is founded: " +
				"etcd needs a majority of its founding members; if too few of them can run, and the cluster has never been in use, delete the KVMConfig and create it again"},
		"a founder was removed from the spec, and etcd has begun": {etcd: at(etcd.Remove, etcd.ReasonLeaving), founders: []string{"m1", "m2"}, held: []string{"m2"},
			want: "Wait Leaving: because"},
		"whole": {etcd: at(etcd.None, ""), founders: []string{"m1"}, want: "Done"},
		"a master has just left": {etcd: at(etcd.None, ""), founders: []string{"m1"}, retiring: 1,
			want: "Wait Leaving: masters were removed from the spec, and etcd has not been asked for their members since"},
		"a member is added":          {etcd: at(etcd.Add, etcd.ReasonJoining), founders: []string{"m1"}, want: "Wait Joining: because"},
		"a member is unhealthy":      {etcd: at(etcd.Wait, etcd.ReasonMemberUnhealthy), founders: []string{"m1"}, want: "Wait MemberUnhealthy: because"},
		"an alarm":                   {etcd: full, founders: []string{"m1"}, want: "Wait Alarm: etcd has an alarm: memberID:1 alarm:NOSPACE"},
		"an alarm that needs people": {etcd: stuck, founders: []string{"m1"}, want: "Wait Alarm: etcd has an alarm: memberID:1 alarm:NOSPACE; delete objects"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{
				Config: &v1alpha1.KVMConfig{}, Etcd: test.etcd, Founders: test.founders, AwaitingFounding: test.held,
				Nodes: []state.Node{{ID: "m1", Role: key.RoleMaster}}, Retiring: make([]state.Node, test.retiring),
				Workload: state.Workload{Connected: !test.gone},
			}
			if test.gone || test.ran {
				s.Nodes[0].Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationEtcdMember: "1"}}}
			}
			got := "Done"
			switch o := decide(s); o.State {
			case chain.StateDone:
			case chain.StateUnknown:
				got = fmt.Sprintf("Unknown %s: %s", o.Reason, o.Message)
			default:
				got = fmt.Sprintf("Wait %s: %s", o.Reason, o.Message)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
