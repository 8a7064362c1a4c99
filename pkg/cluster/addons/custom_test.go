package addons_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// ownNetwork is a pod network as its project publishes it.
const ownNetwork = `# A pod network as its makers publish it.
---
apiVersion: v1
kind: Namespace
metadata: {name: own-network, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.network.example.org}
spec:
  group: network.example.org
  names: {kind: Pool, listKind: PoolList, plural: pools, singular: pool}
  scope: Cluster
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: own-network, namespace: own-network}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: own-network}
rules:
  - {apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: own-network}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: own-network}
subjects: [{kind: ServiceAccount, name: own-network, namespace: own-network}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: own-network, namespace: own-network}
rules:
  - {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: own-network, namespace: own-network}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: own-network}
subjects: [{kind: ServiceAccount, name: own-network, namespace: own-network}]
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: own-network}
stringData: {key: a2V5}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {mtu: "1400"}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: own-network, labels: {app: agent}}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 1}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      hostNetwork: true
      serviceAccountName: own-network
      tolerations: [{operator: Exists}]
      containers:
        - name: agent
          image: registry.example.org/network/agent:1
          resources: {requests: {cpu: 1000m, memory: 0.5Gi}}
          ports: [{containerPort: 9999, hostPort: 9999}]
          securityContext: {privileged: true}
          livenessProbe: {httpGet: {path: /health, port: 9999}}
      volumes: [{name: run, hostPath: {path: /run/agent}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: agent, namespace: own-network}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: agent}}}
`

func custom(p *addons.Params) { p.CNI.Type, p.CNI.Manifests = addons.CNICustom, ownNetwork }

// TestManifestsOfUsersConverge: a real API server accepts a user's own network, nothing is written again for it,
// neither now nor after a restart, and it is removed when flannel replaces it.
func TestManifestsOfUsersConverge(t *testing.T) {
	m, asked := connect(t, startAPIServer(t))
	engine := apply.New(m.GetClient(), m.GetAPIReader(), clock.RealClock{})
	pass(t, engine, asked, params(custom))
	for name, engine := range map[string]*apply.Engine{"the second pass": engine, "a restart": apply.New(m.GetClient(), m.GetAPIReader(), clock.RealClock{})} {
		if diff := cmp.Diff([]string(nil), pass(t, engine, asked, params(custom))); diff != "" {
			t.Errorf("requests of %s (-want +got):\n%s", name, diff)
		}
	}
	agent := &appsv1.DaemonSet{}
	if err := m.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: "own-network", Name: "agent"}, agent); err != nil {
		t.Fatal(err)
	}
	if labels := agent.Labels; labels["app"] != "agent" || labels[key.LabelGSCluster] != "abc12" || labels[key.LabelManagedBy] != key.Operator {
		t.Errorf("the labels are %v", labels)
	}
	if err := m.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "config"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("what names no namespace is not in default: %s", err)
	}
	pass(t, engine, asked, params())
	if err := m.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: "own-network", Name: "agent"}, agent); err == nil && agent.DeletionTimestamp == nil {
		t.Error("the network of before stays beside flannel")
	}
}

// TestManifestsThatCannotBeKeptAreTold: the error names the document and what is wrong with it.
func TestManifestsThatCannotBeKeptAreTold(t *testing.T) {
	for name, test := range map[string]struct{ manifests, want string }{
		"no YAML":                       {"a: b: c", "document 1: "},
		"a kind that is not kept":       {"# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: b}\n", "document 3: a Job of batch/v1 is not kept, only these kinds are: ClusterRole, "},
		"a field that is none":          {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatas: {}\n", `unknown field "datas"`},
		"no name":                       {"apiVersion: v1\nkind: ConfigMap\ndata: {}\n", "document 1: it has no name"},
		"the same object twice":         {strings.Repeat("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n", 2), "document 2: a is there before"},
		"something that is no manifest": {"hello: world\n", "document 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := addons.Custom(params(func(p *addons.Params) { p.CNI.Manifests = test.manifests }))
			if err == nil || !strings.Contains(err.Error(), "spec.addons.cni.manifests: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestManifestsThatWereExported: what the API server of another cluster set on an object means nothing for this one.
func TestManifestsThatWereExported(t *testing.T) {
	const exported = `apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  uid: 5e6a9f0c-0d3c-4bb3-9e0c-3a4d7c1c0d11
  resourceVersion: "4711"
  generation: 3
  creationTimestamp: "2026-11-25T06:00:00Z"
  managedFields: [{manager: kubectl, operation: Update}]
  ownerReferences: [{apiVersion: v1, kind: Pod, name: gone, uid: 5e6a9f0c-0d3c-4bb3-9e0c-3a4d7c1c0d12}]
data: {a: b}
`
	objects, err := addons.Custom(addons.Params{CNI: addons.CNI{Manifests: exported}})
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	got := objects[0].(*corev1.ConfigMap)
	want := metav1.ObjectMeta{Name: "settings", Namespace: "default", Labels: got.Labels}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("it is applied with (-want +got):\n%s", diff)
	}
}
