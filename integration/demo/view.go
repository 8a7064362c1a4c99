package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// view turns observations into lines, one for each thing that is other than it was.
type view struct {
	said map[string]string // what there was to say of each thing, by its name; nil without a KVMConfig
	done map[string]bool   // conditions that were True
}

// repeated are conditions that say again what lines of nodes or of other conditions say.
var repeated = []string{"Ready", "Reconciling", "Stalled", "NodesReady", "ReadinessReported"}

// changes describes how an observation differs from the last one.
func (v *view) changes(o observation) []string {
	if o.config == nil {
		known := v.said != nil
		*v = view{}
		if known {
			return []string{"the KVMConfig is gone, and the workload cluster with it"}
		}
		return nil
	}
	var lines []string
	if finished := v.finished(o.config.Status.Conditions); len(finished) > 0 {
		lines = append(lines, "done: "+strings.Join(finished, ", "))
	}
	facts, order := facts(o.config)
	for _, name := range order {
		if v.said[name] != facts[name] {
			lines = append(lines, name+": "+facts[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.said)) {
		if _, still := facts[name]; !still && strings.Contains(name, " ") {
			lines = append(lines, name+": gone")
		}
	}
	v.said = facts
	return lines
}

// finished are the conditions that have become True.
func (v *view) finished(conditions []metav1.Condition) []string {
	var names []string
	done := map[string]bool{}
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue || slices.Contains(repeated, c.Type) {
			continue
		}
		done[c.Type] = true
		if !v.done[c.Type] {
			names = append(names, c.Type)
		}
	}
	v.done = done
	return names
}

// facts are what there is to say of a KVMConfig besides what is done: conditions by their type, nodes by role and id.
func facts(config *v1alpha1.KVMConfig) (facts map[string]string, order []string) {
	facts = map[string]string{}
	add := func(name, text string) { facts[name], order = text, append(order, name) }
	for _, c := range config.Status.Conditions {
		if waits(c) {
			add(c.Type, c.Reason+": "+c.Message)
		}
	}
	for _, n := range config.Status.Nodes {
		add(n.Role+" "+n.ID, cmp.Or(n.Message, n.Phase))
	}
	if config.DeletionTimestamp != nil {
		add("KVMConfig", "is being deleted")
	}
	return facts, order
}

// waits tells whether a condition itself stands in the way. A blocked step stands behind another that does.
func waits(c metav1.Condition) bool {
	if c.Type == "Stalled" {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse && c.Reason != "Blocked" && !slices.Contains(repeated, c.Type)
}
