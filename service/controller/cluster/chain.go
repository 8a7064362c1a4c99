package cluster

import (
	"slices"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/resources/addon"
	"github.com/kvm-operator/kvm-operator/resources/addonhealth"
	"github.com/kvm-operator/kvm-operator/resources/certificaterequest"
	"github.com/kvm-operator/kvm-operator/resources/certificaterotation"
	"github.com/kvm-operator/kvm-operator/resources/certificates"
	"github.com/kvm-operator/kvm-operator/resources/clusterrolebinding"
	"github.com/kvm-operator/kvm-operator/resources/configmap"
	"github.com/kvm-operator/kvm-operator/resources/deployment"
	"github.com/kvm-operator/kvm-operator/resources/endpoints"
	"github.com/kvm-operator/kvm-operator/resources/etcdmember"
	"github.com/kvm-operator/kvm-operator/resources/etcdrestore"
	"github.com/kvm-operator/kvm-operator/resources/etcdretired"
	"github.com/kvm-operator/kvm-operator/resources/etcdsnapshot"
	"github.com/kvm-operator/kvm-operator/resources/ingress"
	"github.com/kvm-operator/kvm-operator/resources/kubeconfig"
	"github.com/kvm-operator/kvm-operator/resources/namespace"
	"github.com/kvm-operator/kvm-operator/resources/network"
	"github.com/kvm-operator/kvm-operator/resources/networkpolicy"
	"github.com/kvm-operator/kvm-operator/resources/node"
	"github.com/kvm-operator/kvm-operator/resources/nodeindexstatus"
	"github.com/kvm-operator/kvm-operator/resources/nodelabel"
	"github.com/kvm-operator/kvm-operator/resources/nodereadiness"
	"github.com/kvm-operator/kvm-operator/resources/placement"
	"github.com/kvm-operator/kvm-operator/resources/poddisruptionbudget"
	"github.com/kvm-operator/kvm-operator/resources/pvc"
	"github.com/kvm-operator/kvm-operator/resources/randomkey"
	"github.com/kvm-operator/kvm-operator/resources/release"
	"github.com/kvm-operator/kvm-operator/resources/service"
	"github.com/kvm-operator/kvm-operator/resources/serviceaccount"
	"github.com/kvm-operator/kvm-operator/resources/terminateunhealthynodes"
	"github.com/kvm-operator/kvm-operator/resources/vault"
	"github.com/kvm-operator/kvm-operator/resources/workload"
)

// Resources are the handlers that are pure functions from the snapshot to objects, in the order of the chain.
func Resources() []apply.Resource[*snapshot.Snapshot] {
	return []apply.Resource[*snapshot.Snapshot]{
		certificates.New(), randomkey.New(), namespace.New(), serviceaccount.New(), clusterrolebinding.New(),
		poddisruptionbudget.New(), service.New(), networkpolicy.New(), ingress.New(), endpoints.New(), configmap.New(), etcdrestore.New(), deployment.New(),
		etcdsnapshot.New(), etcdretired.New(), kubeconfig.New(),
	}
}

// NewChain is the order of work of the cluster controller. Deletion goes through it backward. Without connections to
// workload clusters it makes machines only, and without a Vault, which has the keys of authorities, there is nothing to revoke.
func NewChain(e *apply.Engine, w *Workloads, v vault.Revoker, c clock.PassiveClock, recorder events.EventRecorder) chain.Chain[*snapshot.Snapshot] {
	links := machines(e, c)
	if v != nil {
		links = revoking(links, v)
	}
	if w == nil {
		return links
	}
	return append(links, inside(e, w, c, recorder)...)
}

// revoking puts the revocation of certificates where it comes, on deletion, after their Secrets are gone and before the namespace.
func revoking(links chain.Chain[*snapshot.Snapshot], v vault.Revoker) chain.Chain[*snapshot.Snapshot] {
	at := slices.IndexFunc(links, func(l chain.Link[*snapshot.Snapshot]) bool { return l.Handler.Name() == certificates.New().Handler })
	links[at].Needs = []string{"vault"}
	return slices.Insert(links, at, chain.Link[*snapshot.Snapshot]{Handler: vault.New(v), Needs: []string{"namespace"}})
}

// inside is the work in the workload cluster. It goes on while machines are replaced: nodes have to join for that to end. Who asks that cluster
// has his turn only, for the same goroutines work on all clusters.
func inside(e *apply.Engine, w *Workloads, c clock.PassiveClock, recorder events.EventRecorder) chain.Chain[*snapshot.Snapshot] {
	links := chain.Chain[*snapshot.Snapshot]{
		// Needs nothing: members are changed beside the chain, and tell of it here.
		{Handler: etcdmember.New()},
		// Waits until the API answers, and says when it is the certificate for it that is missing; nothing below is possible
		// before. It goes on beside a Service that is refused: those that exist stay as they are.
		{Handler: workload.New(w), Follows: []string{"service"}},
	}
	// What lets nodes join, then what makes them Ready.
	for _, resource := range addon.All() {
		links = append(links, chain.Link[*snapshot.Snapshot]{Handler: w.turns.Limit(resource.HandleIn(w.engine)), Needs: []string{"workload"}})
	}
	return append(links,
		// Pods of the add-ons need nodes, which the links below let in: nothing waits for it but Ready.
		chain.Link[*snapshot.Snapshot]{Handler: addonhealth.New(), Needs: []string{"workload"}},
		// Kubelets get their certificates by the rights that "bootstrap" gives.
		chain.Link[*snapshot.Snapshot]{Handler: w.turns.Limit(certificaterequest.New(e, w.approver)), Needs: []string{"bootstrap"}},
		chain.Link[*snapshot.Snapshot]{Handler: w.turns.Limit(nodelabel.New(w.labeller)), Needs: []string{"workload"}},
		// The pods' gates follow the Nodes, and with the gates the endpoints do.
		chain.Link[*snapshot.Snapshot]{Handler: nodereadiness.New(e), Needs: []string{"workload"}},
		chain.Link[*snapshot.Snapshot]{Handler: w.turns.Limit(node.New(e, w.remover)), Needs: []string{"workload"}},
		// Not below "workload": that a cluster which does not answer is left alone is a decision, too, and is told.
		chain.Link[*snapshot.Snapshot]{Handler: terminateunhealthynodes.New(terminator{e, recorder}, c)},
	)
}

// machines is the work on the management cluster.
func machines(e *apply.Engine, c clock.PassiveClock) chain.Chain[*snapshot.Snapshot] {
	return chain.Chain[*snapshot.Snapshot]{
		// An index is stored before anything is made that carries it.
		{Handler: nodeindexstatus.Handler{}},
		// No machine is made of networks that would lead its packets astray.
		{Handler: network.Handler{}},
		// Says which versions are in force, and stores those that were accepted before a machine is made with them. What does
		// not depend on them goes on without.
		{Handler: release.Handler{}},
		// Foreign namespaces are found here, before anything is put into one. On deletion it goes after all that is in it.
		{Handler: namespace.New().Handle(e), Needs: []string{"nodeindexstatus"}},
		// Keys live beside the KVMConfig and outlast the namespace. They need it nonetheless: a cluster whose id belongs to
		// somebody else gets no keys, and on deletion they stay until every machine is gone.
		{Handler: certificates.New().Handle(e), Needs: []string{"namespace"}},
		{Handler: randomkey.New().Handle(e), Needs: []string{"namespace"}},
		// The identity of node pods; a pod is refused without it.
		{Handler: serviceaccount.New().Handle(e), Needs: []string{"namespace"}},
		{Handler: clusterrolebinding.New().Handle(e), Needs: []string{"namespace"}},
		// What evictions may take at once stands before there is anything to evict.
		{Handler: poddisruptionbudget.New().Handle(e), Needs: []string{"namespace"}},
		// Names and addresses that boot data and certificates speak of. On deletion they stay until the machines are gone.
		{Handler: service.New().Handle(e), Needs: []string{"namespace"}},
		// Closed before the first machine opens a port, but for the cluster's own Services.
		{Handler: networkpolicy.New().Handle(e), Needs: []string{"namespace"}, Follows: []string{"service"}},
		{Handler: ingress.New().Handle(e), Needs: []string{"service"}},
		// A node port that is taken is no reason to lead packets to machines that are gone.
		{Handler: endpoints.New().Handle(e), Follows: []string{"service"}},
		// Everything a node pod mounts exists before the pod does. A change of versions that is refused holds nothing up:
		// nodes are made with the versions in force.
		{Handler: configmap.New().Handle(e), Needs: []string{"network", "certificates", "randomkey"}, Follows: []string{"release"}},
		{Handler: pvc.New(e), Needs: []string{"namespace"}},
		// Checks and places a snapshot. It does not need "pvc", which a worker's volume may hold up: pods wait for their claims, and claims, on
		// deletion, for their pods.
		{Handler: etcdrestore.New().Handle(e), Needs: []string{"namespace"}},
		// The machines. A worker whose host volume is missing waits by itself: its pod stays pending, the others run.
		{Handler: deployment.New().Handle(e), Needs: []string{"configmap", "serviceaccount", "networkpolicy", "poddisruptionbudget", "service"}},
		{Handler: etcdsnapshot.New().Handle(e), Needs: []string{"certificates"}, Follows: []string{"service"}},
		// Renames what masters have left on hosts. It needs no machine, and no machine needs it.
		{Handler: etcdretired.New().Handle(e), Needs: []string{"namespace"}},
		{Handler: kubeconfig.New().Handle(e), Needs: []string{"certificates"}},
		// Late, for it may ask to store what it found out: where the data of masters is.
		{Handler: placement.New(e), Needs: []string{"namespace"}},
		// Not below "certificates": it tells also of what cannot be issued.
		{Handler: certificaterotation.New(e, c), Needs: []string{"namespace"}},
	}
}
