package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// hints tells what to try with a running demo. The commands are meant to be copied.
func (d *demo) hints() string {
	id := clusterID(d.last.config)
	object := "kvmconfig -n " + d.config.Namespace + " " + d.config.Name
	commands := [][2]string{
		{"kubectl get kvmconfigs -A", "is the cluster ready, and if not, why"},
		{"kubectl describe " + object, "every condition, every node"},
		{"kubectl get all -n " + id, "what the operator made"},
		{"kubectl edit " + object, "add to spec.cluster.workers and to spec.kvm.workers, and see below"},
		{"kubectl delete pod -n " + id + " -l app=worker", "the operator's answer is to be seen below"},
		{"bin/kvm-operator render -f " + examples + "/kvmconfig.yaml", "the same objects without a cluster"},
		{"kubectl delete " + object, "and everything goes"},
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\nThe hosts are simulated, so no machine boots in this demo; everything else is real. Try in another terminal:\n\n")
	fmt.Fprintf(&text, "    cd %s; export KUBECONFIG=$PWD/.demo/kubeconfig PATH=$PWD/.tools:$PATH\n\n", d.state.root)
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		fmt.Fprintf(columns, "    %s\t# %s\n", c[0], c[1])
	}
	columns.Flush()
	fmt.Fprintf(&text, "\nLogs: .demo/operator.log, .demo/management-cluster/*.log\n\n")
	return text.String()
}
