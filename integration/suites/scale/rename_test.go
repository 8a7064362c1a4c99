package scale_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// renamed returns the object of another cluster, as large as this one's, without what the API server added.
func renamed(b testing.TB, object client.Object, from, to string) client.Object {
	data, err := json.Marshal(object)
	if err != nil {
		b.Fatal(err)
	}
	other := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(data), from, to)), other); err != nil {
		b.Fatal(err)
	}
	other.SetUID("")
	other.SetResourceVersion("")
	other.SetManagedFields(nil)
	other.SetGeneration(0)
	// It must not look like the operator's object.
	annotations := other.GetAnnotations()
	for name := range annotations {
		annotations[name] += "-plain"
	}
	if service, ok := other.(*corev1.Service); ok {
		if service.Spec.ClusterIP != corev1.ClusterIPNone {
			service.Spec.ClusterIP = ""
		}
		service.Spec.ClusterIPs = nil
		// A headless Service without selector is read back with RequireDualStack, which an API server with one address
		// family rejects.
		service.Spec.IPFamilies, service.Spec.IPFamilyPolicy = nil, nil
		for i := range service.Spec.Ports {
			service.Spec.Ports[i].NodePort = 0
		}
	}
	return other
}
