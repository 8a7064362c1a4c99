package lab

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/service"
)

// Objects lists everything that the operator created for a KVMConfig, directly from the API server.
func (l *Lab) Objects(t testing.TB, config *v1alpha1.KVMConfig) []client.Object {
	t.Helper()
	return l.ObjectsByConfig(t, config)[0]
}

// ObjectsByConfig lists everything that the operator created for each of some KVMConfigs, with one list of each kind.
func (l *Lab) ObjectsByConfig(t testing.TB, configs ...*v1alpha1.KVMConfig) [][]client.Object {
	t.Helper()
	objects := make([][]client.Object, len(configs))
	for _, kind := range service.CreatedKinds() {
		gvk, err := apiutil.GVKForObject(kind, l.Client.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		empty, err := l.Client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			t.Fatal(err)
		}
		list := empty.(client.ObjectList)
		if err := l.Client.List(context.Background(), list, client.MatchingLabels{key.LabelManagedBy: key.Operator}); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			object := item.(client.Object)
			owner, named := ownership.Parse(object.GetAnnotations())
			of := slices.IndexFunc(configs, func(c *v1alpha1.KVMConfig) bool { return owner.OfCustomResource(key.OwnerKVMConfig(c, "")) })
			if named && of >= 0 {
				object.GetObjectKind().SetGroupVersionKind(gvk)
				objects[of] = append(objects[of], object)
			}
		}
	}
	return objects
}

// Dump returns what the operator created for a KVMConfig as text that can be compared between clusters: without what
// the API server adds, without random keys and what depends on them, and with the cluster's id and the addresses of its
// Services replaced.
func (l *Lab) Dump(t *testing.T, config *v1alpha1.KVMConfig) map[string]string {
	t.Helper()
	dump := map[string]string{}
	objects := l.Objects(t, config)
	addresses := strings.NewReplacer(serviceAddresses(objects)...)
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue // it is being deleted, and the garbage collector does that in its own time
		}
		text, err := portable(object)
		if err != nil {
			t.Fatal(err)
		}
		text = restoreToken.ReplaceAllString(etcdMark.ReplaceAllString(text, "${1}MARK/"), "${1}TICKET")
		id := config.Spec.Cluster.ID
		name := fmt.Sprintf("%s %s/%s", object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace(), object.GetName())
		dump[strings.ReplaceAll(name, id, "ID")] = strings.ReplaceAll(addresses.Replace(text), id, "ID")
	}
	return dump
}

// restoreToken matches the founding token of a restore, which depends on the UID of the cluster's namespace.
var restoreToken = regexp.MustCompile(`(/etcd-ticket: restored)[0-9a-f]{12}\b`)

// etcdMark matches the mark in the path of key.EtcdHostPath.
var etcdMark = regexp.MustCompile(`(/home/core/volumes/[^/]+/)[0-9a-f]{16}/`)

// serviceAddresses returns pairs for a strings.Replacer: each address of a Service as a network, and its replacement.
func serviceAddresses(objects []client.Object) []string {
	var pairs []string
	for _, object := range objects {
		if service, ok := object.(*corev1.Service); ok && service.Spec.ClusterIP != "" && service.Spec.ClusterIP != corev1.ClusterIPNone {
			pairs = append(pairs, service.Spec.ClusterIP+"/32", "SERVICE/32")
		}
	}
	return pairs
}

func portable(object client.Object) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", err
	}
	delete(content, "status")
	if data, ok := content["data"].(map[string]any); ok {
		for name := range data {
			data[name] = "..."
		}
	}
	drop(content, "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "clusterIP", "clusterIPs", "nodePort", "finalizers",
		ownership.AnnotationUID, ownership.AnnotationApplied, key.AnnotationNodeHash, key.AnnotationBootstrapToken, key.AnnotationCertificatesEnd, "deployment.kubernetes.io/revision")
	text, err := yaml.Marshal(content)
	return string(text), err
}

// drop removes the keys at every level.
func drop(value any, keys ...string) {
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			if slices.Contains(keys, name) {
				delete(v, name)
				continue
			}
			drop(item, keys...)
		}
	case []any:
		for _, item := range v {
			drop(item, keys...)
		}
	}
}
