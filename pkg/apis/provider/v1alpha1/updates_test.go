package v1alpha1_test

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
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
		want:   `spec.cluster.id: Invalid value: "other": is immutable because all objects of the cluster are named after it; create another KVMConfig instead`,
	},
	"another pod network": {
		change: "spec: {cluster: {calico: {subnet: 10.244.0.0}}}",
		want:   `spec.cluster.calico.subnet: Invalid value: "10.244.0.0": is immutable, because nodes and pods hold addresses of the pod network; create another cluster instead`,
	},
	"a larger pod network": {
		change: "spec: {cluster: {calico: {cidr: 15}}}",
		want:   "spec.cluster.calico.cidr: Invalid value: 15: is immutable, because nodes and pods hold addresses of the pod network; create another cluster instead",
	},
	"another prefix in etcd": {
		change: "spec: {cluster: {etcd: {prefix: registry}}}",
		want:   `spec.cluster.etcd.prefix: Invalid value: "registry": is immutable, because under another prefix the API server finds an empty cluster; create another cluster instead`,
	},
	"another network of Services": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: 10.97.0.0/16}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "10.97.0.0/16": is immutable, because Services hold addresses of the network; create another cluster instead`,
	},
	"a network of Services left out that was given": {
		change: "spec: {cluster: {kubernetes: {api: {clusterIPRange: <remove>}}}}",
		want:   `spec.cluster.kubernetes.api.clusterIPRange: Invalid value: "172.31.0.0/16": is immutable, because Services hold addresses of the network; create another cluster instead`,
	},
	"another API domain": {
		change: "spec: {cluster: {kubernetes: {api: {domain: api.other.example.org}}}}",
		want:   `spec.cluster.kubernetes.api.domain: Invalid value: "api.other.example.org": is immutable, because it is in every kubeconfig and certificate of the cluster; create another cluster instead`,
	},
	"another API port": {
		change: "spec: {cluster: {kubernetes: {api: {securePort: 6443}}}}",
		want:   "spec.cluster.kubernetes.api.securePort: Invalid value: 6443: is immutable because every node and kubeconfig reaches the API by it; create another cluster instead",
	},
	"another cluster domain": {
		change: "spec: {cluster: {kubernetes: {domain: other.local}}}",
		want:   `spec.cluster.kubernetes.domain: Invalid value: "other.local": is immutable, because it is part of names that running pods and certificates hold; create another cluster instead`,
	},
	"a DNS address that was left out": {
		change: "spec: {cluster: {kubernetes: {dns: {ip: 10.96.0.53}}}}",
		want:   "spec.cluster.kubernetes.dns.ip: Invalid value: is immutable, because running pods resolve names through it; set it back",
	},
	"etcd moved from volumes to hosts": {
		change: "spec: {kvm: {k8sKVM: {storageType: hostPath}}}",
		want:   "spec.kvm.k8sKVM.storageType: Invalid value: is immutable, because under another storage type masters would start with an empty etcd; create another cluster instead",
	},
	"a storage type left out that was given": {
		change: "spec: {kvm: {k8sKVM: <remove>}}",
		want:   "spec.kvm.k8sKVM.storageType: Invalid value: is immutable, because under another storage type masters would start with an empty etcd; create another cluster instead",
	},
	"smaller etcd volumes": {
		change: "spec: {kvm: {etcd: {size: 19Gi}}}",
		want:   "spec.kvm.etcd.size: Invalid value: must not shrink, because volumes can only grow (15Gi when left out); set it back or raise it",
	},
	"etcd volumes of the default size, which is smaller": {
		change: "spec: {kvm: {etcd: <remove>}}",
		want:   "spec.kvm.etcd.size: Invalid value: must not shrink, because volumes can only grow (15Gi when left out); set it back or raise it",
	},
	"new masters only": {
		change: "spec: {cluster: {masters: [{id: a}, {id: b}, {id: c}]}}",
		want:   "spec.cluster.masters: Invalid value: must keep one of the present masters at least, because etcd's data comes from there; replace the others first and this one later",
	},
}

func TestUpdatesThatWouldLoseAClusterAreRefused(t *testing.T) {
	created := server.Store(t, crd.Load(t, "minimal", living))
	for name, test := range refusedUpdates {
		t.Run(name, func(t *testing.T) {
			changed := created.DeepCopy()
			crd.Merge(changed.Object, crd.Parse(t, test.change))
			err := server.Update(context.Background(), changed, client.DryRunAll)
			crd.Refused(t, err, test.want)
		})
	}
}

func TestUpdatesThatAClusterSurvivesAreAccepted(t *testing.T) {
	created := server.Store(t, crd.Load(t, "minimal", living))
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
			crd.Merge(changed.Object, crd.Parse(t, change))
			if err := server.Update(context.Background(), changed, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatClustersLivedWithMayStay: objects that were created before a rule remain valid, and other changes to them are
// accepted. The rules are taken out of the definition for the time in which the object is created.
func TestWhatClustersLivedWithMayStay(t *testing.T) {
	const before = `
metadata: {name: before}
spec:
  cluster:
    id: before
    calico: {subnet: 169.254.0.0, cidr: 30}
    etcd: {domain: 10.0.0.1}
    kubernetes: {dns: {ip: 172.31.0.1}, kubelet: {labels: role=worker}, ssh: {userList: [{name: core}]}}
  kvm: {masters: [{cpus: 2, memory: 1G}], workers: [{cpus: 2, memory: 4G, disk: 1}]}
  access: {type: NodePort, host: a, nodePort: 30010, certSANs: ["a:1"]}
  versions: {kubernetes: 1.35.4+k3s1}
`
	var created *unstructured.Unstructured
	withoutRules(t, func() { created = server.Store(t, crd.Load(t, "minimal", before)) })
	for name, change := range map[string]string{
		"another customer": "spec: {cluster: {customer: {id: other}}}",
		"another user":     "spec: {cluster: {kubernetes: {ssh: {userList: [{name: core}, {name: ada}]}}}}",
		"another MTU":      "spec: {cluster: {calico: {mtu: 1400}}}",
		"a drain timeout":  "spec: {drain: {timeout: 5m}}",
		"a port mapping":   "spec: {kvm: {portMappings: [{name: http, nodePort: 30010, targetPort: 80}]}}",
		"another host":     "spec: {access: {host: b}}",
		"another version":  "spec: {versions: {kubernetes: 1.35.5}}",
	} {
		t.Run(name, func(t *testing.T) {
			changed := created.DeepCopy()
			crd.Merge(changed.Object, crd.Parse(t, change))
			if err := server.Update(context.Background(), changed, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
	more := created.DeepCopy()
	crd.Merge(more.Object, crd.Parse(t, "spec: {cluster: {workers: [{id: w1}, {id: w2}]}, kvm: {workers: [{cpus: 2, memory: 4G}, {cpus: 2, memory: 4G}]}}"))
	if err := server.Update(context.Background(), more, client.DryRunAll); err == nil {
		t.Error("a network that had too little room takes another node")
	}
}

func TestAnEmptyStorageTypeIsHostPath(t *testing.T) {
	created := server.Store(t, crd.Load(t, "minimal"))
	for _, value := range []string{`""`, "hostPath", "<remove>"} {
		changed := created.DeepCopy()
		crd.Merge(changed.Object, crd.Parse(t, "spec: {kvm: {k8sKVM: {storageType: "+value+"}}}"))
		if err := server.Update(context.Background(), changed, client.DryRunAll); err != nil {
			t.Errorf("storageType %s: %v", value, err)
		}
	}
}

// withoutRules does something while the definition of KVMConfigs has no rules, as if it were of an earlier version.
func withoutRules(t *testing.T, do func()) {
	t.Helper()
	definitions, err := crd.Connect(server.Config, apiextensionsv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	var rules *apiextensionsv1.JSONSchemaProps
	set := func(schema *apiextensionsv1.JSONSchemaProps) {
		var stored apiextensionsv1.CustomResourceDefinition
		if err := definitions.Get(t.Context(), client.ObjectKey{Name: "kvmconfigs.provider.giantswarm.io"}, &stored); err != nil {
			t.Fatal(err)
		}
		rules = stored.Spec.Versions[0].Schema.OpenAPIV3Schema.DeepCopy()
		if schema == nil {
			schema = rules.DeepCopy()
			dropRules(schema)
		}
		stored.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
		if err := definitions.Update(t.Context(), &stored); err != nil {
			t.Fatal(err)
		}
	}
	set(nil)
	with := rules
	defer func() {
		set(with)
		waitFor(t, func() bool {
			return server.Create(t.Context(), crd.Load(t, "minimal", "spec: {cluster: {id: default}}"), client.DryRunAll) != nil
		})
	}()
	waitFor(t, func() bool {
		return server.Create(t.Context(), crd.Load(t, "minimal", "spec: {cluster: {id: default}}"), client.DryRunAll) == nil
	})
	do()
}

func dropRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations = nil
	for name, property := range schema.Properties {
		dropRules(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		dropRules(schema.Items.Schema)
	}
}

// waitFor waits until the API server has taken note of a definition: the condition has to hold ten times in a row.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for start, inRow := time.Now(), 0; inRow < 10; time.Sleep(100 * time.Millisecond) {
		if inRow++; !condition() {
			inRow = 0
		}
		if time.Since(start) > time.Minute {
			t.Fatal("the API server does not take note of the definition")
		}
	}
}
