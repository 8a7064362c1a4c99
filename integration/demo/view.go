package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// view turns observations into lines, one for each fact that has changed.
type view struct {
	said map[string]string // the text about each thing by name; nil without a KVMConfig
	done map[string]bool   // conditions that were True
}

// repeated are conditions that say again what lines of nodes or of other conditions say.
var repeated = []string{"Ready", "Reconciling", "Stalled", "NodesReady", "NodesRepaired"}

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

// finished returns the conditions that have become True.
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

// facts returns what is not yet done in a KVMConfig: conditions by type, and nodes by role and id.
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

// waits reports whether a condition itself blocks progress. A condition with reason Blocked waits for another one.
func waits(c metav1.Condition) bool {
	if c.Type == "Stalled" {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse && c.Reason != "Blocked" && !slices.Contains(repeated, c.Type)
}
