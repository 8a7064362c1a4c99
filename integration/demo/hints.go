package main

import (
	"fmt"
	"strings"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// hint is a command and its purpose.
type hint struct{ command, meaning string }

// hints returns what to try with a running demo. The commands can be copied.
func (d *demo) hints() string {
	object := "kvmconfig " + d.config.Name
	master := key.DeploymentName(key.RoleMaster, d.config.Spec.Cluster.Masters[0].ID)
	var text strings.Builder
	fmt.Fprintf(&text, "\nTry in another terminal, which needs:\n\n    cd %s && export PATH=$PWD/.tools:$PATH\n", d.state.root)
	section(&text, "The workload cluster, of virtual machines:", d.state.workload(), []hint{
		{"kubectl get nodes -o wide", ""},
		{"kubectl get pods -A -o wide", ""},
		{"kubectl logs deployment/web", ""},
		{"kubectl exec deployment/web -- /usr/bin/web get " + stage.ServiceURL, "several times: the pods take turns"},
	})
	section(&text, "The management cluster, of hosts:", d.state.management(), []hint{
		{"kubectl get nodes -o wide", ""},
		{"kubectl get kvmconfigs -o wide", "ready, and if not, why"},
		{"kubectl describe " + object, "every condition, every node"},
		{"kubectl get all -n " + d.namespace(), "what the operator made"},
		{fmt.Sprintf("kubectl exec -n %s deployment/%s -- /opt/kvm-operator/kvm-operator runner console --tail", d.namespace(), master), "the console of a machine"},
		{fmt.Sprintf("kubectl patch %s --type=json -p '%s'", object, addWorker), "a worker more; follow it below"},
		{"kubectl edit " + object, "anything else"},
		{"kubectl delete " + object, "the end of the workload cluster"},
	})
	if d.smolVMs {
		section(&text, "SmolVMs in the management cluster; the hosts have no Internet, and one image, "+stage.SmolVMImage+":", d.state.management(), []hint{
			{"kubectl get smolvmnodes", "ready, and if not, why"},
			{"kubectl apply -f " + examples + "/smolvm.yaml", ""},
			{"kubectl wait smolvm/hello --for=condition=GuestReady --timeout=10m", ""},
			{"go run . smolvm exec hello -- wget -qO- http://127.0.0.1/", "in the guest"},
			{fmt.Sprintf("nsenter --net=/proc/$(cut -d' ' -f1 %s/site.pid)/ns/net curl http://$(kubectl get node "+
				"$(kubectl get smolvm hello -o jsonpath='{.status.nodeName}') -o jsonpath='{.status.addresses[0].address}'):18080", d.state.cluster()),
				"at its port of the host, from the hosts' network"},
			{`kubectl patch smolvm hello --type=merge -p '{"spec":{"running":false}}'`, "stop"},
			{`kubectl patch smolvm hello --type=merge -p '{"spec":{"running":true,"storage":{"storageGiB":2}}}'`, "start with a larger disk"},
			{"go run . smolvm logs hello --tail=20", "what it printed on its console, which is nothing until it stops"},
			{"kubectl delete smolvm hello", "its disks go, too"},
		})
	}
	fmt.Fprintf(&text, "\nCtrl-C stops everything and leaves nothing behind. Until then, what changes is shown here:\n\n")
	return text.String()
}

// addWorker is a JSON patch. A worker is a node and a machine.
const addWorker = `[{"op":"add","path":"/spec/cluster/workers/-","value":{"id":"w3"}},` +
	`{"op":"add","path":"/spec/kvm/workers/-","value":{"cpus":1,"memory":"2500M"}}]`

// section prints commands for one cluster.
func section(text *strings.Builder, title, kubeconfig string, hints []hint) {
	fmt.Fprintf(text, "\n%s\n\n    export KUBECONFIG=%s\n", title, kubeconfig)
	for _, h := range hints {
		if h.meaning != "" {
			fmt.Fprintf(text, "    # %s\n", h.meaning)
		}
		fmt.Fprintf(text, "    %s\n", h.command)
	}
}
