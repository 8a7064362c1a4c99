package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

const (
	// observeInterval is how often the KVMConfig is read.
	observeInterval = time.Second
	// consoleLines is how many lines of the console of a hung node are shown.
	consoleLines = "25"
)

// follow prints changes until done. It returns an error when the context ends.
func (d *demo) follow(ctx context.Context, done func(observation) bool) error {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		seen, err := d.observe(ctx)
		if err == nil {
			d.last = seen
			for _, line := range d.view.changes(seen) {
				d.say("%s", line)
			}
			if done(seen) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			// The API server may be unreachable for some time. Only the last read error matters.
			return errors.Join(context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// explain adds to a cause what is known about a cluster that makes no progress. An interrupt needs no explanation.
func (d *demo) explain(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	var text strings.Builder
	fmt.Fprintf(&text, "KVMConfig %s does not get on: %s", d.config.Name, strings.ReplaceAll(cause.Error(), "\n", ": "))
	for _, reason := range d.last.blockers() {
		fmt.Fprintf(&text, "\n  %s", reason)
	}
	if d.last.config != nil {
		for _, node := range d.last.config.Status.Nodes {
			if node.Phase != nodeReady && node.Pod != "" {
				text.WriteString(d.console(ctx, node))
			}
		}
	}
	log := d.state.path("operator.log")
	if err := os.WriteFile(log, []byte(d.stage.OperatorLog(ctx)), 0o644); err != nil {
		return errors.Join(errors.New(text.String()), err)
	}
	end, err := process.Tail(log, 5)
	if err != nil {
		return errors.Join(errors.New(text.String()), err)
	}
	fmt.Fprintf(&text, "\nend of %s:\n%s\n", log, end)
	text.WriteString(d.inside(ctx))
	return errors.New(text.String())
}

// console returns the end of the console of a node's machine, and of its runner's output.
func (d *demo) console(ctx context.Context, node v1alpha1.NodeStatus) string {
	text, err := d.stage.Cluster.Kubectl(ctx, "--namespace="+d.namespace(), "logs", node.Pod, "--tail="+consoleLines)
	if err != nil {
		text = err.Error()
	}
	return fmt.Sprintf("\nend of the console of %s %s:\n%s", node.Role, node.ID, text)
}

// inside describes the workload cluster from within, if it can be reached.
func (d *demo) inside(ctx context.Context) string {
	if _, err := os.Stat(d.state.workload()); err != nil {
		return ""
	}
	var text strings.Builder
	for _, arguments := range []string{"get nodes --output=wide", "get pods --all-namespaces --output=wide"} {
		output, err := d.stage.Kubectl(ctx, d.state.workload(), "", strings.Fields(arguments)...)
		if err != nil {
			output = err.Error() + "\n"
		}
		fmt.Fprintf(&text, "in the workload cluster, kubectl %s:\n%s", arguments, output)
	}
	return text.String()
}

// blockers lists what keeps a KVMConfig from its goal.
func (o observation) blockers() []string {
	if o.config == nil {
		return []string{"there is no such KVMConfig"}
	}
	if len(o.config.Status.Conditions) == 0 {
		return []string{"the operator has not written any status.conditions"}
	}
	var reasons []string
	for _, c := range o.config.Status.Conditions {
		if waits(c) {
			reasons = append(reasons, fmt.Sprintf("condition %s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	for _, n := range o.config.Status.Nodes {
		if n.Phase != nodeReady {
			reasons = append(reasons, fmt.Sprintf("%s %s is %s: %s", n.Role, n.ID, n.Phase, n.Message))
		}
	}
	return reasons
}
