package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// seen returns an observation of a KVMConfig of generation 2 with conditions and nodes.
func seen(conditions []metav1.Condition, nodes ...v1alpha1.NodeStatus) observation {
	config := &v1alpha1.KVMConfig{Status: v1alpha1.KVMConfigStatus{Conditions: conditions, Nodes: nodes}}
	config.Generation = 2
	return observation{config}
}

func worker(phase, message string) v1alpha1.NodeStatus {
	return v1alpha1.NodeStatus{ID: "w1", Role: "worker", Phase: phase, Message: message}
}

// isTrue, isFalse and isUnknown return one condition.
func isTrue(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: "True", ObservedGeneration: 2}
}

func isFalse(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: "False", Reason: reason, Message: message, ObservedGeneration: 2}
}

func blocked(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: "Unknown", Reason: "Blocked", Message: "waits for workload"}
}

func all(conditions ...metav1.Condition) []metav1.Condition { return conditions }

func TestReady(t *testing.T) {
	outdated := isTrue("Ready")
	outdated.ObservedGeneration = 1
	for name, test := range map[string]struct {
		seen observation
		want bool
	}{
		"a KVMConfig that is gone":             {observation{}, false},
		"one that the operator has not seen":   {seen(nil), false},
		"one that waits":                       {seen(all(isFalse("Ready", "NodesNotReady", ""))), false},
		"one that was Ready before its change": {seen(all(outdated)), false},
		"one that is Ready":                    {seen(all(isTrue("Ready"))), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ready(test.seen); got != test.want {
				t.Errorf("ready is %v, want %v", got, test.want)
			}
		})
	}
}

func TestBlockersNameWhatIsWrong(t *testing.T) {
	stalled := isTrue("Stalled")
	stalled.Reason, stalled.Message = "ReleaseNotFound", "there is no Release 1"
	for name, test := range map[string]struct {
		seen observation
		want string
	}{
		"no KVMConfig":               {observation{}, "there is no such KVMConfig"},
		"an operator that is silent": {seen(nil), "the operator has not written any status.conditions"},
		"a step, and a node that is not Ready": {
			seen(all(isFalse("Ready", "NoMaster", "the same"), isFalse("Stalled", "NoProblem", ""), isFalse("Available", "NoMaster", "no master has an address"),
				blocked("AddOnsReady")), worker("Starting", "Booting: the machine boots"), worker("Ready", "")),
			"condition Available is False: NoMaster: no master has an address\nworker w1 is Starting: Booting: the machine boots",
		},
		"what only a person can fix": {seen(all(stalled)), "condition Stalled is True: ReleaseNotFound: there is no Release 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, strings.Join(test.seen.blockers(), "\n")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestViewSaysOnlyWhatChanges(t *testing.T) {
	v := view{}
	deleted := seen(all(isTrue("CertificatesReady")))
	deleted.config.DeletionTimestamp = &metav1.Time{}
	for i, step := range []struct {
		seen observation
		want []string
	}{
		{observation{}, nil},
		{seen(nil), nil},
		{
			seen(all(isFalse("Ready", "NoMaster", "the same"), isTrue("CertificatesReady"), isTrue("InfrastructureReady"), isFalse("Available", "NoMaster", "none"), blocked("AddOnsReady")),
				worker("Pending", "Scheduling: no host yet")),
			[]string{"done: CertificatesReady, InfrastructureReady", "Available: NoMaster: none", "worker w1: Scheduling: no host yet"},
		},
		{
			seen(all(isTrue("CertificatesReady"), isTrue("InfrastructureReady"), isFalse("Available", "NoMaster", "none")), worker("Pending", "Scheduling: no host yet")),
			nil,
		},
		{
			seen(all(isTrue("Ready"), isTrue("CertificatesReady"), isTrue("InfrastructureReady"), isTrue("Available")), worker("Ready", "")),
			[]string{"done: Available", "worker w1: Ready"},
		},
		{
			seen(all(isTrue("CertificatesReady"), isFalse("InfrastructureReady", "Retrying", "quota"), isTrue("Available"))),
			[]string{"InfrastructureReady: Retrying: quota", "worker w1: gone"},
		},
		{deleted, []string{"KVMConfig: is being deleted"}},
		{observation{}, []string{"the KVMConfig is gone, and the workload cluster with it"}},
		{observation{}, nil},
		{seen(all(isTrue("CertificatesReady"))), []string{"done: CertificatesReady"}},
		{observation{}, []string{"the KVMConfig is gone, and the workload cluster with it"}},
	} {
		if diff := cmp.Diff(step.want, v.changes(step.seen)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}
