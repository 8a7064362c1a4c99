package v1alpha1_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// living is a cluster with data that an update could lose.
const living = `
spec:
  cluster:
    masters: [{id: m1}, {id: m2}, {id: m3}]
    kubernetes: {api: {clusterIPRange: 10.96.0.0/16}}
  kvm:
    k8sKVM: {storageType: persistentVolume}
    etcd: {size: 20Gi}
    masters: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]
`

// refusedUpdates are changes to a living cluster that would lose its data or cut it off.
var refusedUpdates = map[string]rejection{
	"another cluster ID": {
		change: "spec: {cluster: {id: other}}",
		want:   `spec.cluster.id: Invalid value: "other": is immutable, for everything of the cluster is named after it; create another KVMConfig instead`,
	},
	"another pod network": {
		change: "spec: {cluster: {calico: {subnet: 10.244.0.0}}}",
		want:   `spec.cluster.calico.subnet: Invalid value: "10.244.0.0": is immutable, for nodes and pods hold addresses of the pod network; create another cluster instead`,
	},
	"a larger pod network": {
		change: "spec: {cluster: {calico: {cidr: 15}}}",
		want:   "spec.cluster.calico.cidr: Invalid value: 15: is immutable, for nodes and pods hold addresses of the pod network; create another cluster instead",
	},
	"another prefix in etcd": {
		change: "spec: {cluster: {etcd: {prefix: registry}}}",
		want:   `spec.cluster.etcd.prefix: Invalid value: "registry": is immutable, for under another prefix the API server finds an empty cluster; create another cluster instead`,
	},
	"another network of Services": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: 10.97.0.0/16}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "10.97.0.0/16": is immutable, for Services hold addresses of the network; create another cluster instead`,
	},
	"a network of Services left out that was given": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: <remove>}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "172.31.0.0/16": is immutable, for Services hold addresses of the network; create another cluster instead`,
	},
	"another API domain": {
		change: "spec: {cluster: {kubernetes: {api: {domain: api.other.example.org}}}}",
		want:   `spec.cluster.kubernetes.api.domain: Invalid value: "api.other.example.org": is immutable, for it stands in every kubeconfig and certificate of the cluster; create another cluster instead`,
	},
	"another API port": {
		change: "spec: {cluster: {kubernetes: {api: {securePort: 6443}}}}",
		want:   "spec.cluster.kubernetes.api.securePort: Invalid value: 6443: is immutable, for every node and kubeconfig of the cluster reaches the API by it; create another cluster instead",
	},
	"another cluster domain": {
		change: "spec: {cluster: {kubernetes: {domain: other.local}}}",
		want:   `spec.cluster.kubernetes.domain: Invalid value: "other.local": is immutable, for it is part of names that running pods and certificates hold; create another cluster instead`,
	},
	"a DNS address that was left out": {
		change: "spec: {cluster: {kubernetes: {dns: {ip: 10.96.0.53}}}}",
		want:   "spec.cluster.kubernetes.dns.ip: Invalid value: is immutable, for running pods resolve names through it; set it back",
	},
	"etcd moved from volumes to hosts": {
		change: "spec: {kvm: {k8sKVM: {storageType: hostPath}}}",
		want:   "spec.kvm.k8sKVM.storageType: Invalid value: is immutable, for under another storage type masters would start with an empty etcd; create another cluster instead",
	},
	"a storage type left out that was given": {
		change: "spec: {kvm: {k8sKVM: <remove>}}",
		want:   "spec.kvm.k8sKVM.storageType: Invalid value: is immutable, for under another storage type masters would start with an empty etcd; create another cluster instead",
	},
	"smaller etcd volumes": {
		change: "spec: {kvm: {etcd: {size: 19Gi}}}",
		want:   "spec.kvm.etcd.size: Invalid value: must not shrink, for volumes can only grow (15Gi when left out); set it back or raise it",
	},
	"etcd volumes of the default size, which is smaller": {
		change: "spec: {kvm: {etcd: <remove>}}",
		want:   "spec.kvm.etcd.size: Invalid value: must not shrink, for volumes can only grow (15Gi when left out); set it back or raise it",
	},
	"new masters only": {
		change: "spec: {cluster: {masters: [{id: a}, {id: b}, {id: c}]}}",
		want:   "spec.cluster.masters: Invalid value: must keep one of the present masters at least, for etcd's data comes from there; replace the others first and this one later",
	},
}

func TestUpdatesThatWouldLoseAClusterAreRefused(t *testing.T) {
	created := create(t, load(t, "minimal", living))
	for name, test := range refusedUpdates {
		t.Run(name, func(t *testing.T) {
			changed := created.DeepCopy()
			merge(changed.Object, parse(t, test.change))
			err := server.Update(context.Background(), changed, client.DryRunAll)
			if diff := cmp.Diff([]string{test.want}, sentences(err)); diff != "" {
				t.Errorf("the API server says something else (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdatesThatAClusterSurvivesAreAccepted(t *testing.T) {
	created := create(t, load(t, "minimal", living))
	for name, change := range map[string]string{
		"another customer":           "spec: {cluster: {customer: {id: other}}}",
		"more workers":               "spec: {cluster: {workers: [{id: w2}, {id: w1}]}, kvm: {workers: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}",
		"no workers":                 "spec: {cluster: {workers: <remove>}, kvm: {workers: <remove>}}",
		"masters in another order":   "spec: {cluster: {masters: [{id: m3}, {id: m1}, {id: m2}]}}",
		"larger machines":            "spec: {kvm: {workers: [{cpus: 4, memory: 8G}]}}",
		"larger etcd volumes":        "spec: {kvm: {etcd: {size: 0.1Ti}}}",
		"another class for volumes":  "spec: {kvm: {etcd: {storageClassName: fast}}}",
		"another etcd domain":        "spec: {cluster: {etcd: {domain: etcd.other.example.org}}}",
		"another MTU":                "spec: {cluster: {calico: {mtu: 1400}}}",
		"another version":            "spec: {versions: {kubernetes: 1.36.0}}",
		"other labels on the object": "metadata: {labels: {release.giantswarm.io/version: 16.2.2}}",
	} {
		t.Run(name, func(t *testing.T) {
			changed := created.DeepCopy()
			merge(changed.Object, parse(t, change))
			if err := server.Update(context.Background(), changed, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnEmptyStorageTypeIsHostPath(t *testing.T) {
	created := create(t, load(t, "minimal"))
	for _, value := range []string{`""`, "hostPath", "<remove>"} {
		changed := created.DeepCopy()
		merge(changed.Object, parse(t, "spec: {kvm: {k8sKVM: {storageType: "+value+"}}}"))
		if err := server.Update(context.Background(), changed, client.DryRunAll); err != nil {
			t.Errorf("storageType %s: %v", value, err)
		}
	}
}
