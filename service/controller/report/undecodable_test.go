package report

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

var now = metav1.NewTime(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))

// TestConditionsAreWrittenOnce checks that conditions are written again only if they differ, and keep their transition
// time if the status is the same.
func TestConditionsAreWrittenOnce(t *testing.T) {
	config := &v1alpha1.KVMConfig{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	first := conditionsOf(config.Status.Conditions, config.Generation, "why", now)
	if len(first) != 3 {
		t.Fatalf("the conditions are %v", first)
	}
	config.Status.Conditions = first
	later := metav1.NewTime(now.Add(time.Hour))
	if again := conditionsOf(config.Status.Conditions, config.Generation, "why", later); again != nil {
		t.Errorf("they are written again: %v", again)
	}
	for name, change := range map[string]func(*v1alpha1.KVMConfig){
		"another generation": func(c *v1alpha1.KVMConfig) { c.Generation++ },
		"a condition that another client changed": func(c *v1alpha1.KVMConfig) {
			c.Status.Conditions[0].Status, c.Status.Conditions[0].Reason = metav1.ConditionTrue, "Ready"
		},
		"a condition that is gone": func(c *v1alpha1.KVMConfig) { c.Status.Conditions = c.Status.Conditions[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			changed := config.DeepCopy()
			change(changed)
			again := conditionsOf(changed.Status.Conditions, changed.Generation, "why", later)
			if len(again) != 3 {
				t.Fatalf("they are not written: %v", again)
			}
			for _, c := range again {
				if c.Type == "Stalled" && !c.LastTransitionTime.Equal(&now) {
					t.Errorf("%s is True since %s, and was since %s", c.Type, c.LastTransitionTime, now)
				}
				if c.ObservedGeneration != changed.Generation {
					t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
				}
			}
		})
	}
	if again := conditionsOf(config.Status.Conditions, config.Generation, "another reason", later); len(again) != 3 {
		t.Errorf("another message is not written: %v", again)
	}
}

// TestTheMessageHasTheWayOut checks that the message has the command that corrects the object, and the path of the
// field.
func TestTheMessageHasTheWayOut(t *testing.T) {
	here := metav1.ObjectMeta{Namespace: "default", Name: "ab1cd"}
	for name, test := range map[string]struct {
		of       *Undecodable
		metadata metav1.ObjectMeta
		why      string
		want     string
	}{
		"a field of the spec": {
			KVMConfigs(), here, "spec.a: 1: bad",
			"the KVMConfig cannot be read: spec.a: 1: bad; until it is corrected, the operator leaves the cluster as it is: kubectl edit kvmconfigs.provider.giantswarm.io ab1cd -n default",
		},
		"a field of the status": {KVMConfigs(), here, "status.a: 1: bad", "kubectl edit kvmconfigs.provider.giantswarm.io ab1cd -n default --subresource=status"},
		"one that is being deleted": {
			KVMConfigs(), metav1.ObjectMeta{Name: "ab1cd", DeletionTimestamp: &now}, "spec.a: 1: bad", "leaves the cluster as it is and does not delete it either",
		},
		"a VirtualMachine": {
			VirtualMachines(), here, "spec.a: 1: bad", "the operator leaves the machine as it is: kubectl edit vms.vmoperator.jdrupes.org ab1cd -n default",
		},
		"a Release": {
			Releases(), metav1.ObjectMeta{Name: "v1.0.0"}, "spec.date: 1: bad",
			"clusters that name it do not get its versions: kubectl edit releases.release.giantswarm.io v1.0.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := test.of.New()
			object.SetNamespace(test.metadata.Namespace)
			object.SetName(test.metadata.Name)
			object.SetDeletionTimestamp(test.metadata.DeletionTimestamp)
			if got := test.of.message(object, test.why); !strings.Contains(got, test.want) {
				t.Errorf("it says\n\t%s\nand not\n\t%s", got, test.want)
			}
		})
	}
}
