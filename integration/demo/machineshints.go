package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// kept is a Machine that the tour does not delete.
const kept = "db-0"

// hints returns what to try with a running demo. The commands can be copied.
func (d *machinesDemo) hints() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nTry in another terminal, which needs:\n\n    cd %s && export PATH=$PWD/bin:$PWD/.tools:$PATH\n", d.state.root)
	section(&text, "Machines, in namespace "+team+", which this kubeconfig has as its default:", d.state.management(), []hint{
		{"kubectl get machines -A -o wide", "all, with reason and KubeVirt's state"},
		{"kubectl describe machine " + kept, "conditions and events"},
		{"kubectl get vm,vmi,pvc,secret -l " + v1alpha1.LabelMachine + "=" + kept, "what the operator made"},
		{"kubectl describe networkconfiguration front", "who is on a network"},
		{"kubectl patch machine " + kept + ` --type=merge -p '{"spec":{"resources":{"cpu":{"cores":6}}}}'`, "a change that waits for the next start"},
		{"echo '{}' | kubectl replace --raw " + subresourcePath(kept, "restart") + " -f -", "as `virtctl restart " + kept + "`"},
		{"kubectl apply -f " + samples + "/machine_small.yaml", "a Machine more; follow it below"},
		{"kubectl delete machine " + kept, "the end of a Machine, with its claims"},
	})
	fmt.Fprintf(&text, "\nThe operator. It is no pod, so its log is a file:\n\n    tail -f %s\n    curl -s http://%s/metrics | grep ^kubevirt_operator\n", d.relative(d.operatorLog()), d.address)
	text.WriteString("\nWhat docs/machines.md and docs/networkconfiguration.md tell you to do works here, too. But pods and guests are simulated:\n" +
		"kubectl logs, kubectl exec and virtctl console have nothing to connect to.\n")
	fmt.Fprintf(&text, "\nCtrl-C stops everything and leaves nothing behind. Until then, what changes is shown here:\n\n")
	return text.String()
}

// explain adds to a cause what is known of the Machines and of the operator. An interrupt needs no explanation.
func (d *machinesDemo) explain(ctx context.Context, cause error) error {
	if ctx.Err() != nil || d.operator == nil {
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	var text strings.Builder
	text.WriteString(cause.Error())
	list := &v1alpha1.MachineList{}
	if err := d.client.List(ctx, list, client.InNamespace(team)); err != nil {
		fmt.Fprintf(&text, "\nMachines cannot be read: %s", err)
	}
	for _, m := range list.Items {
		fmt.Fprintf(&text, "\n  %s: %s", m.Name, fact(m))
	}
	select {
	case <-d.operator.Done():
		return errors.New(text.String()) // the cause has the end of the log
	default:
	}
	end, err := process.Tail(d.operatorLog(), logLines)
	if err != nil {
		return errors.Join(errors.New(text.String()), err)
	}
	fmt.Fprintf(&text, "\nend of %s:\n%s", d.operatorLog(), end)
	return errors.New(text.String())
}
