package cluster

import (
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/addon"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/addonhealth"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/certificaterenewal"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/certificaterequest"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/certificaterotation"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/certificates"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/clusterrolebinding"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/configmap"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/deployment"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdmember"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdrestore"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdretired"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdsnapshot"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/ingress"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/kubeconfig"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/namespace"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/network"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/networkpolicy"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/nodeindexstatus"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/nodelabel"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/placement"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/poddisruptionbudget"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/pvc"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/randomkey"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/release"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/service"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/serviceaccount"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/vault"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/workload"
)

// chain returns the ordered handlers of the controller. Deletion runs them backward. Without connections to workload
// clusters it only creates machines, and without a Vault that has the keys of CAs there is nothing to revoke.
func (r *Reconciler) chain() chain.Chain[*state.Cluster] {
	links := machines(r.engine, r.Issuer, r.NewKey)
	if r.Vault != nil {
		links = revoking(links, r.Vault)
	}
	if r.Workloads == nil {
		return links
	}
	return append(links, inside(r.engine, r.Workloads)...)
}

// revoking inserts the revocation of certificates where it belongs: on deletion, after their Secrets are gone and
// before the namespace.
func revoking(links chain.Chain[*state.Cluster], v vault.Revoker) chain.Chain[*state.Cluster] {
	at := slices.IndexFunc(links, func(l chain.Link[*state.Cluster]) bool { return l.Handler.Name() == "certificates" })
	links[at].Needs = []string{"vault"}
	return slices.Insert(links, at, chain.Link[*state.Cluster]{Handler: vault.New(v), Needs: []string{"namespace"}, Condition: ConditionCertificates})
}

// inside returns the handlers in the workload cluster. They run while machines are replaced, because nodes have to join
// for the rollout to end. Handlers that call the workload API are time-limited, because all clusters share the same
// workers.
func inside(e *apply.Engine, w *Workloads) chain.Chain[*state.Cluster] {
	links := chain.Chain[*state.Cluster]{
		// Needs nothing: members are changed outside the chain, and this handler reports it.
		{Handler: etcdmember.New(), Condition: ConditionEtcd},
		// Waits until the API responds, and reports if the certificate for it is missing; nothing below is possible
		// before that. It continues if a Service is rejected, because existing Services do not change.
		{Handler: workload.New(w), Follows: []string{"service"}, Condition: ConditionAvailable},
	}
	// First what lets nodes join, then what makes them Ready.
	for _, resource := range addon.All() {
		condition := ConditionAddOns
		if resource.Handler == addon.Bootstrap().Handler {
			condition = ConditionJoined
		}
		links = append(links, chain.Link[*state.Cluster]{Handler: w.turns.Limit(resource.HandleIn(w.engine)), Needs: []string{"workload"}, Condition: condition})
	}
	return append(links,
		// Pods of the add-ons need nodes, which the links below admit: only Ready waits for this handler.
		chain.Link[*state.Cluster]{Handler: addonhealth.New(), Needs: []string{"workload"}, Condition: ConditionAddOns},
		// Kubelets get their certificates by the rights that "bootstrap" grants.
		chain.Link[*state.Cluster]{Handler: w.turns.Limit(certificaterequest.New(e, w.approver)), Needs: []string{"bootstrap"}, Condition: ConditionJoined},
		chain.Link[*state.Cluster]{Handler: w.turns.Limit(nodelabel.New(w.labeler)), Needs: []string{"workload"}, Condition: ConditionJoined},
	)
}

// machines returns the handlers on the management cluster.
func machines(e *apply.Engine, issuer pki.Issuer, keys randomkey.Source) chain.Chain[*state.Cluster] {
	return chain.Chain[*state.Cluster]{
		// An index is stored before an object that contains it is created.
		{Handler: nodeindexstatus.Handler{}, Condition: ConditionInfrastructure},
		// Reject overlapping networks before any machine is created.
		{Handler: network.Handler{}, Condition: ConditionInfrastructure},
		// Reports the versions in use, and stores those that were accepted before a machine is created with them.
		// Handlers that do not depend on versions continue without it.
		{Handler: release.Handler{}, Condition: ConditionVersions},
		// Finds foreign namespaces before anything is created in one. On deletion it runs after everything in the
		// namespace.
		{Handler: namespace.New().Handle(e), Needs: []string{"nodeindexstatus"}, Condition: state.ConditionNamespace},
		// Keys are in the namespace of the KVMConfig and survive the cluster's namespace. They need it nonetheless: a
		// cluster whose ID belongs to another one gets no keys, and on deletion they stay until every machine is gone.
		{Handler: certificates.New(issuer).Handle(e), Needs: []string{"namespace"}, Condition: ConditionCertificates},
		// Renews what is due before boot data is made of it. Pairs that cannot be renewed stay in use.
		{Handler: certificaterenewal.New(e, issuer), Needs: []string{"namespace"}, Follows: []string{"certificates"}, Condition: ConditionCertificates},
		{Handler: randomkey.New(keys).Handle(e), Needs: []string{"namespace"}, Condition: ConditionCertificates},
		// The service account of node pods; a pod is rejected without it.
		{Handler: serviceaccount.New().Handle(e), Needs: []string{"namespace"}, Condition: ConditionInfrastructure},
		{Handler: clusterrolebinding.New().Handle(e), Needs: []string{"namespace"}, Condition: ConditionInfrastructure},
		// The limit of evictions exists before there is anything to evict.
		{Handler: poddisruptionbudget.New().Handle(e), Needs: []string{"namespace"}, Condition: ConditionInfrastructure},
		// Names and addresses that boot data and certificates refer to. On deletion they stay until the machines are
		// gone.
		{Handler: service.New().Handle(e), Needs: []string{"namespace"}, Condition: ConditionInfrastructure},
		// Restricts the network before the first machine opens a port, except for the cluster's own Services.
		{Handler: networkpolicy.New().Handle(e), Needs: []string{"namespace"}, Follows: []string{"service"}, Condition: ConditionInfrastructure},
		{Handler: ingress.New().Handle(e), Needs: []string{"service"}, Condition: ConditionInfrastructure},
		// Everything that a node pod mounts exists before the pod does. A change of versions that is rejected blocks
		// nothing, because nodes are created with the versions in use.
		{Handler: configmap.New().Handle(e), Needs: []string{"network", "certificates", "randomkey"}, Follows: []string{"release", "certificaterenewal"}, Condition: ConditionNodes},
		{Handler: pvc.New(e), Needs: []string{"namespace"}, Condition: ConditionInfrastructure},
		// Checks and places a snapshot. It does not need "pvc", which a worker's volume may block: pods wait for their
		// claims and, on deletion, claims wait for their pods.
		{Handler: etcdrestore.New().Handle(e), Needs: []string{"namespace"}, Condition: ConditionEtcd},
		// The machines. A worker whose host volume is missing waits by itself: its pod stays pending, the others run.
		{Handler: deployment.New().Handle(e), Needs: []string{"configmap", "serviceaccount", "networkpolicy", "poddisruptionbudget", "service"}, Condition: ConditionNodes},
		{Handler: etcdsnapshot.New().Handle(e), Needs: []string{"certificates"}, Follows: []string{"service"}, Condition: ConditionSnapshots},
		// Renames data that masters have left on hosts. It needs no machine, and no machine needs it.
		{Handler: etcdretired.New().Handle(e), Needs: []string{"namespace"}, Condition: ConditionEtcd},
		{Handler: kubeconfig.New().Handle(e), Needs: []string{"certificates"}, Follows: []string{"certificaterenewal"}, Condition: ConditionCertificates},
		// Late, because it may store what it found out: where the data of masters is.
		{Handler: placement.New(e), Needs: []string{"namespace"}, Condition: ConditionNodes},
		// Does not need "certificates", because it also reports what cannot be issued.
		{Handler: certificaterotation.New(e, issuer), Needs: []string{"namespace"}, Follows: []string{"certificaterenewal"}, Condition: ConditionCertificates},
	}
}
