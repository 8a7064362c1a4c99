package addons

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// reasonManifests is the reason for manifests that cannot be applied as they are.
const reasonManifests = "ManifestsInvalid"

// read caches parsed manifests by their hash, because parsing several hundred KiB takes longer than the rest of a
// reconcile. It holds this many different manifests.
var read = lru.New(64)

// manifest is a parsed manifest.
type manifest struct {
	objects []client.Object
	err     error
}

// Custom returns the objects of the user's manifests. They have to be of the Kinds of this package, because others are
// neither watched nor removed.
func Custom(p Params) ([]client.Object, error) {
	sum := sha256.Sum256([]byte(p.CNI.Manifests))
	known, ok := read.Get(sum)
	if !ok {
		objects, err := parse(p.CNI.Manifests)
		known = manifest{objects, err}
		read.Add(sum, known)
	}
	m := known.(manifest)
	if m.err != nil {
		return nil, problem.Newf(reasonManifests, "spec.addons.cni.manifests: %s", m.err)
	}
	var all []client.Object
	for _, object := range m.objects {
		object := object.DeepCopyObject().(client.Object)
		labels := map[string]string{}
		maps.Copy(labels, object.GetLabels())
		maps.Copy(labels, p.meta("", "", nil).Labels)
		object.SetLabels(labels)
		all = append(all, object)
	}
	return all, nil
}

// parse parses YAML documents.
func parse(text string) ([]client.Object, error) {
	decoder := serializer.NewCodecFactory(ofKinds(), serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	var all []client.Object
	seen := map[string]bool{}
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil && blank(document) {
			continue
		}
		var object client.Object
		if err == nil {
			object, err = decode(decoder, document)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		name := fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))
		if seen[name] {
			return nil, fmt.Errorf("document %d: %s is there before", number, object.GetName())
		}
		seen[name] = true
		all = append(all, object)
	}
}

// decode decodes one document. A field that its kind does not have would be lost, so it is an error.
func decode(decoder runtime.Decoder, document []byte) (client.Object, error) {
	decoded, _, err := decoder.Decode(document, nil, nil)
	var kind metav1.TypeMeta
	if runtime.IsNotRegisteredError(err) && yaml.Unmarshal(document, &kind) == nil {
		return nil, fmt.Errorf("a %s of %s is not kept, only these kinds are: %s; install it by yourself", kind.Kind, kind.APIVersion, kindNames())
	}
	if err != nil {
		return nil, err
	}
	object := decoded.(client.Object)
	if object.GetName() == "" {
		return nil, errors.New("it has no name")
	}
	complete(object)
	return object, nil
}

// blank reports whether a document contains nothing but comments.
func blank(document []byte) bool {
	return !slices.ContainsFunc(strings.Split(string(document), "\n"), func(line string) bool {
		line = strings.TrimSpace(line)
		return line != "" && line != "---" && !strings.HasPrefix(line, "#")
	})
}

// complete sets the namespace of an object as kubectl does, converts stringData as the API server does, and removes
// what only the API server may set, which is there if the object was exported from another cluster.
func complete(object client.Object) {
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetGeneration(0)
	object.SetCreationTimestamp(metav1.Time{})
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	object.SetSelfLink("")
	object.SetManagedFields(nil)
	object.SetOwnerReferences(nil)
	if secret, ok := object.(*corev1.Secret); ok {
		for name, text := range secret.StringData {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[name] = []byte(text)
		}
		secret.StringData = nil
	}
	switch object.(type) {
	case *apiextensionsv1.CustomResourceDefinition, *corev1.Namespace, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
		object.SetNamespace("")
	default:
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
	}
}

// ofKinds returns a scheme with only the Kinds.
func ofKinds() *runtime.Scheme {
	known, all := runtime.NewScheme(), runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apiextensionsv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		_ = add(all) // the types are part of this program
	}
	for _, kind := range Kinds() {
		if kinds, _, err := all.ObjectKinds(kind); err == nil {
			known.AddKnownTypes(kinds[0].GroupVersion(), kind)
		}
	}
	return known
}

// kindNames returns the names of the Kinds.
func kindNames() string {
	var names []string
	for gvk := range ofKinds().AllKnownTypes() {
		names = append(names, gvk.Kind)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
