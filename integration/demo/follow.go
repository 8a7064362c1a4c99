package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/managementcluster/process"
)

// observeInterval is how often the view is renewed.
const observeInterval = 300 * time.Millisecond

// follow shows what happens until it is done. It ends with an error when the operator ends or the context does.
func (d *demo) follow(ctx context.Context, done func(observation) bool) error {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		seen, err := d.observe(ctx)
		if err == nil {
			d.last = seen
			d.view.show(rows(seen))
			if done(seen) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			// The API server may be out of reach for a while; only the last failure to look matters.
			return errors.Join(ctx.Err(), err)
		case <-d.operator.Done():
			return d.operator.Failure()
		case <-ticker.C:
		}
	}
}

// blocked says what the demo was waiting for when it gave up.
func (d *demo) blocked(cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	var text strings.Builder
	fmt.Fprintf(&text, "not every node pod of KVMConfig %s became Ready in time", d.config)
	for _, reason := range d.last.blockers() {
		fmt.Fprintf(&text, "\n  %s", reason)
	}
	fmt.Fprintf(&text, "\n  %s", strings.ReplaceAll(cause.Error(), "\n", ": "))
	log := d.state.path("operator.log")
	end, err := process.Tail(log, 10)
	if err != nil {
		return errors.Join(errors.New(text.String()), err)
	}
	fmt.Fprintf(&text, "\n  end of %s:\n%s\n  logs of the management cluster: %s/*.log", log, end, d.cluster.Dir())
	return errors.New(text.String())
}

// blockers lists the conditions that stand between an observation and its goal.
func (o observation) blockers() []string {
	if o.config == nil {
		return []string{"there is no such KVMConfig"}
	}
	var reasons []string
	all := conditions(o.config)
	for _, c := range all {
		// Of the conditions that sum up others, Stalled and Reconciling are good when False.
		if c.status == "False" && c.kind != "Stalled" && c.kind != "Reconciling" {
			reasons = append(reasons, fmt.Sprintf("condition %s is False: %s: %s", c.kind, c.reason, c.message))
		}
	}
	if len(all) == 0 {
		reasons = append(reasons, "the operator has not written any status.conditions")
	}
	if len(o.pods) == 0 {
		reasons = append(reasons, fmt.Sprintf("there are no node pods in namespace %s", clusterID(o.config)))
	}
	for i := range o.pods {
		if pod := &o.pods[i]; !podReady(pod) {
			reasons = append(reasons, "pod "+pod.Name+" is not Ready"+whyNot(pod))
		}
	}
	return reasons
}

// whyNot quotes the first condition of a pod that gives a message.
func whyNot(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			return fmt.Sprintf(": %s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
	return fmt.Sprintf(": phase %s", pod.Status.Phase)
}
