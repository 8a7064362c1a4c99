package undecodable

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
)

// newDecoder decodes as the informers do.
func newDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, releasev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	n := negotiator{serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}}
	info, ok := runtime.SerializerInfoForMediaType(n.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("there is no JSON serializer")
	}
	return n.DecoderToVersion(info.Serializer, v1alpha1.GroupVersion)
}

// kvmConfig is a KVMConfig with a spec, and a status with one condition.
func kvmConfig(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfig",
		"metadata":{"name":%q,"namespace":"default","uid":"u-%s","resourceVersion":"7","generation":3,"finalizers":["f"],"labels":{"l":"v"}},
		"spec":%s,"status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		name, name, spec)
}

// TestFieldsThatCannotBeDecodedAreNamed: each with its value and what is wrong with it, whether it is deeply nested, in
// a list, or one of several.
func TestFieldsThatCannotBeDecodedAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"a quantity that the schema takes": {
			`{"cluster":{"id":"ab1cd"},"kvm":{"etcd":{"size":"1e1.5"}}}`, []string{`spec.kvm.etcd.size: "1e1.5": quantities must match`},
		},
		"a number beyond int32": {
			`{"cluster":{"id":"ab1cd","scaling":{"max":4294967296}}}`, []string{"spec.cluster.scaling.max: 4294967296: is not a value of type int32"},
		},
		"a duration beyond int64": {
			`{"cluster":{"id":"ab1cd"},"drain":{"timeout":"999999h999999h999999h"}}`, []string{`spec.drain.timeout: "999999h999999h999999h": time: invalid duration`},
		},
		"another number": {
			`{"cluster":{"id":"ab1cd"},"rollout":{"maxUnavailable":4294967296}}`, []string{"spec.rollout.maxUnavailable: 4294967296: is not a value of type int32"},
		},
		"a port": {
			`{"cluster":{"id":"ab1cd","etcd":{"port":4294967296}}}`, []string{"spec.cluster.etcd.port: 4294967296: is not a value of type int32"},
		},
		"one machine of several": {
			`{"cluster":{"id":"ab1cd"},"kvm":{"workers":[{"cpus":2,"memory":"4G"},{"cpus":"two","memory":"4G"}]}}`,
			[]string{`spec.kvm.workers[1].cpus: "two": is not a value of type int`},
		},
		"an object where a number belongs":  {`{"cluster":{"id":"ab1cd","etcd":{"port":{"a":1}}}}`, []string{`spec.cluster.etcd.port: {"a":1}: is not a value of type int32`}},
		"a list where an object belongs":    {`{"cluster":{"id":"ab1cd"},"kvm":[1]}`, []string{`spec.kvm: [1]: is not a value of type`}},
		"a string where a list belongs":     {`{"cluster":{"id":"ab1cd"},"kvm":{"workers":"none"}}`, []string{`spec.kvm.workers: "none": is not a value of type`}},
		"two of them":                       {`{"cluster":{"id":"ab1cd","etcd":{"port":4294967296}},"kvm":{"etcd":{"size":"1e1.5"}}}`, []string{"spec.cluster.etcd.port: ", "; spec.kvm.etcd.size: "}},
		"a value that is long is shortened": {`{"cluster":{"id":"ab1cd"},"kvm":{"etcd":{"size":"` + strings.Repeat("9", 5000) + `x"}}}`, []string{"spec.kvm.etcd.size: ", "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			object, _, err := newDecoder(t).Decode([]byte(kvmConfig("a", test.spec)), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			why := Why(object.(*v1alpha1.KVMConfig))
			for _, part := range test.want {
				if !strings.Contains(why, part) {
					t.Errorf("it says\n\t%s\nand not\n\t%s", why, part)
				}
			}
			if len(why) > 1000 {
				t.Errorf("it says %d bytes", len(why))
			}
		})
	}
}

// TestOfWhatCannotBeDecodedTheRestIsKept: what is needed to find, report and delete the object.
func TestOfWhatCannotBeDecodedTheRestIsKept(t *testing.T) {
	object, _, err := newDecoder(t).Decode([]byte(kvmConfig("a", `{"cluster":{"id":"ab1cd"},"kvm":{"etcd":{"size":"1e1.5"}}}`)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := object.(*v1alpha1.KVMConfig)
	want := v1alpha1.KVMConfig{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Namespace: "default", UID: "u-a", ResourceVersion: "7", Generation: 3, Finalizers: []string{"f"}, Labels: map[string]string{"l": "v"},
	}}
	want.Spec.Cluster.ID = "ab1cd"
	got.Annotations = nil
	if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Type != "Ready" {
		t.Errorf("it has the conditions %v", got.Status.Conditions)
	}
	got.Status.Conditions = nil
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("another rest is kept (-want +got):\n%s", diff)
	}
}

// TestAnIDThatCannotBeDecodedIsLeftOut, but the other fields are kept.
func TestAnIDThatCannotBeDecodedIsLeftOut(t *testing.T) {
	object, _, err := newDecoder(t).Decode([]byte(kvmConfig("a", `{"cluster":{"id":7}}`)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := object.(*v1alpha1.KVMConfig)
	if got.Spec.Cluster.ID != "" || len(got.Status.Conditions) != 1 || !strings.Contains(Why(got), "spec.cluster.id: 7: is not a value of type string") {
		t.Errorf("it is %v, because %s", got, Why(got))
	}
}

// TestAListSurvivesItems: the other items are complete, in their order, and the version of the list is kept.
func TestAListSurvivesItems(t *testing.T) {
	good := `{"cluster":{"id":"ok","scaling":{"max":3}}}`
	bad := `{"cluster":{"id":"bad","scaling":{"max":4294967296}}}`
	data := `{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfigList","metadata":{"resourceVersion":"42","continue":"more"},"items":[` +
		strings.Join([]string{kvmConfig("a", good), kvmConfig("b", bad), kvmConfig("c", good)}, ",") + `]}`
	list := &v1alpha1.KVMConfigList{Items: make([]v1alpha1.KVMConfig, 9)}
	if _, _, err := newDecoder(t).Decode([]byte(data), nil, list); err != nil {
		t.Fatal(err)
	}
	if list.ResourceVersion != "42" || list.Continue != "more" || len(list.Items) != 3 {
		t.Fatalf("the list is %v", list)
	}
	for i, want := range []struct {
		name string
		max  int
		bad  bool
	}{{"a", 3, false}, {"b", 0, true}, {"c", 3, false}} {
		item := list.Items[i]
		if item.Name != want.name || int(item.Spec.Cluster.Scaling.Max) != want.max || (Why(&item) != "") != want.bad {
			t.Errorf("item %d is %s with a maximum of %d, because %q", i, item.Name, item.Spec.Cluster.Scaling.Max, Why(&item))
		}
	}
}

// TestReleasesSurvive: an invalid date.
func TestReleasesSurvive(t *testing.T) {
	data := `{"apiVersion":"release.giantswarm.io/v1alpha1","kind":"Release","metadata":{"name":"v1.0.0"},"spec":{"date":"yesterday","components":[]}}`
	object, _, err := newDecoder(t).Decode([]byte(data), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	release := object.(*releasev1alpha1.Release)
	if release.Name != "v1.0.0" || !strings.Contains(Why(release), `spec.date: "yesterday": `) {
		t.Errorf("it is %s, because %s", release.Name, Why(release))
	}
}

// TestWhatIsNoObjectIsAnError, as before.
func TestWhatIsNoObjectIsAnError(t *testing.T) {
	for name, data := range map[string]string{
		"no JSON": `<html>`, "no kind": `{"metadata":{"name":"a"}}`, "no metadata": `{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfig","spec":7}`,
		"metadata that are none": `{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfig","metadata":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			if object, _, err := newDecoder(t).Decode([]byte(data), nil, nil); err == nil {
				t.Errorf("it is %v", object)
			}
		})
	}
}

// TestTheMarkCannotBeForged: no API server accepts an annotation of that name.
func TestTheMarkCannotBeForged(t *testing.T) {
	if !strings.Contains(mark, " ") {
		t.Errorf("%q may be the name of an annotation, so that a user could set it", mark)
	}
}

// TestStatusAndDeletionsPass: what an API server sends besides objects of the kind.
func TestStatusAndDeletionsPass(t *testing.T) {
	data, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: metav1.StatusReasonExpired})
	if err != nil {
		t.Fatal(err)
	}
	object, _, err := newDecoder(t).Decode(data, nil, nil)
	status, ok := object.(*metav1.Status)
	if err != nil || !ok || status.Reason != metav1.StatusReasonExpired || meta.IsListType(object) {
		t.Errorf("it is %v (%v)", object, err)
	}
}
