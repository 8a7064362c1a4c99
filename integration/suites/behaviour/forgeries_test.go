package behaviour_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// secretsAndConfigMaps are the permissions of a user who may write these. kvmConfigs adds those for KVMConfigs and
// their status.
var (
	secretsAndConfigMaps = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"*"}}
	kvmConfigs           = rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"kvmconfigs", "kvmconfigs/status"}, Verbs: []string{"*"},
	}
)

// forger is a user with permissions in one namespace who forges objects that the operator might take for a cluster's.
type forger struct {
	namespace string
	client    client.Client
	// forged are the objects as they were last written.
	forged []client.Object
	// rounds is how often all objects were written.
	rounds int
	// told has the UIDs of objects that another client was seen to change.
	told map[types.UID]bool
	mu   sync.Mutex
}

// newForger creates the namespace if it does not exist and gives a user the permissions in it.
func newForger(t *testing.T, user, namespace string, rights ...rbacv1.PolicyRule) *forger {
	t.Helper()
	makeNamespace(t, namespace)
	at := metav1.ObjectMeta{Namespace: namespace, Name: user}
	create(t, &rbacv1.Role{ObjectMeta: at, Rules: rights}, &rbacv1.RoleBinding{
		ObjectMeta: at, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	config := theLab.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(config, client.Options{Scheme: theLab.Client.Scheme(), Mapper: theLab.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	f := &forger{namespace: namespace, client: c, told: map[types.UID]bool{}}
	probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
	lab.Eventually(t, lab.Timeout, func() error { return c.Create(context.Background(), probe.DeepCopy(), client.DryRunAll) })
	return f
}

func makeNamespace(t *testing.T, name string) {
	t.Helper()
	err := theLab.Client.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// seesNothing fails when the user has permissions in another namespace, because then the test would prove nothing.
func (f *forger) seesNothing(t *testing.T, namespace string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "any"}}
	for verb, err := range map[string]error{
		"list":   f.client.List(context.Background(), &corev1.SecretList{}, client.InNamespace(namespace)),
		"create": f.client.Create(context.Background(), secret.DeepCopy()),
		"delete": f.client.Delete(context.Background(), secret.DeepCopy()),
	} {
		if !apierrors.IsForbidden(err) {
			t.Fatalf("%s Secrets in namespace %s: %v, want that it is forbidden", verb, namespace, err)
		}
	}
}

// claims returns annotations that claim an object for a KVMConfig, correctly or not. The UID is the right one once it
// exists.
func claims(config *v1alpha1.KVMConfig, handler string) []map[string]string {
	right, unknown, other := key.OwnerKVMConfig(config, handler), key.OwnerKVMConfig(config, handler), key.OwnerKVMConfig(config, handler)
	unknown.UID, other.UID = "", "00000000-0000-0000-0000-000000000000"
	earlier := fmt.Sprintf("%s/%s/%s", config.Namespace, config.Name, handler)
	kind := right
	kind.Kind = "VirtualMachine.kvm.example.org"
	return []map[string]string{
		right.Annotations(), unknown.Annotations(), other.Annotations(), kind.Annotations(), nil,
		{ownership.Annotation: earlier}, {ownership.Annotation: earlier, ownership.AnnotationUID: string(config.UID)}, {ownership.Annotation: "nonsense"},
	}
}

// held are finalizers that only their owner removes: one that only a user knows, and the operator's own.
var held = []string{"example.org/held", key.FinalizerCluster, key.FinalizerDrainer}

// forgeries returns objects with the names, the labels and the kind of content of all Secrets and ConfigMaps of a
// cluster. Their content is valid, and the forger has the keys. Objects named offered-... name no owner.
func (f *forger) forgeries(t *testing.T, config *v1alpha1.KVMConfig) []client.Object {
	t.Helper()
	id := config.Spec.Cluster.ID
	completed, err := pkitest.Complete(nil, state.CertificateRequests(state.WithDefaults(config), lab.Settings()), pki.Embedded{Clock: clock.RealClock{}}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	forged := []byte("forged by " + f.namespace)
	for name, pair := range completed.Set {
		data := map[string][]byte{"ca": pair.CA, "crt": pair.Certificate, "key": pair.Key}
		for _, as := range []string{key.SecretName(id, name), "offered-" + key.SecretName(id, name)} {
			objects = append(objects, f.secret(config, as, key.LabelCertificate, name, data))
		}
	}
	for name, value := range map[string]string{
		state.KeyEncryption: base64.StdEncoding.EncodeToString([]byte("a key that is the forger's alone")), state.KeyBootstrapToken: "forger.forgerforgerforg",
	} {
		for _, as := range []string{key.SecretName(id, name), "offered-" + key.SecretName(id, name)} {
			objects = append(objects, f.secret(config, as, key.LabelRandomKey, name, map[string][]byte{name: []byte(value)}))
		}
	}
	objects = append(objects, f.secret(config, key.KubeconfigName(id), "", "kubeconfig", map[string][]byte{"kubeConfig": forged, "value": forged}))
	for _, node := range state.NewNodes(config.Spec) {
		secret := f.secret(config, key.BootDataName(node.Role, id, node.ID), "", "configmap", map[string][]byte{nodepod.UserData: forged})
		objects = append(objects, secret, &corev1.ConfigMap{ObjectMeta: *secret.ObjectMeta.DeepCopy(), Data: map[string]string{nodepod.UserData: string(forged)}})
	}
	slices.SortFunc(objects, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

// labelHandler is the label on forgeries with the handler that they claim to belong to.
const labelHandler = "example.org/handler"

func (f *forger) secret(config *v1alpha1.KVMConfig, as, label, name string, data map[string][]byte) *corev1.Secret {
	id := config.Spec.Cluster.ID
	handler := map[string]string{key.LabelCertificate: "certificates", key.LabelRandomKey: "randomkey", "": name}[label]
	labels := map[string]string{key.LabelGSCluster: id, key.LabelCluster: id, key.LabelManagedBy: key.Operator, labelHandler: handler}
	if label != "" {
		labels[label] = name
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: as, Labels: labels}, Data: data}
}

// forge creates forgeries for a cluster, with finalizers. It deletes every other one, which then remains in deletion.
func (f *forger) forge(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, object := range f.forgeries(t, config) {
		object.SetFinalizers(held)
		f.claim(object, config, i)
		if err := f.client.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := f.client.Delete(context.Background(), object); err != nil {
				t.Fatal(err)
			}
			if err := f.client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
		}
		f.forged = append(f.forged, object)
	}
}

// claim makes an object claim its owner in one of the ways.
func (f *forger) claim(object client.Object, config *v1alpha1.KVMConfig, way int) {
	if strings.HasPrefix(object.GetName(), "offered-") {
		object.SetAnnotations(map[string]string{"example.org/nudge": fmt.Sprint(way)})
		return
	}
	all := claims(config, object.GetLabels()[labelHandler])
	object.SetAnnotations(maps.Clone(all[way%len(all)]))
}

// keepForging changes all forgeries for the clusters repeatedly until stop, which the end of the test also calls. Each
// write names the version that it replaces, so it fails when another client has written.
func (f *forger) keepForging(t *testing.T, configs ...*v1alpha1.KVMConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f.round(ctx, t, configs)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// forgingPause leaves CPU time to others.
const forgingPause = 2 * time.Millisecond

// round changes each forgery once: it makes the next claim, and sometimes writes invalid content.
func (f *forger) round(ctx context.Context, t *testing.T, configs []*v1alpha1.KVMConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rounds++
	known := map[string]*v1alpha1.KVMConfig{}
	for _, config := range configs {
		known[config.Spec.Cluster.ID] = withUID(ctx, config)
	}
	for i, object := range f.forged {
		changed := object.DeepCopyObject().(client.Object)
		f.claim(changed, known[object.GetLabels()[key.LabelGSCluster]], i+f.rounds)
		if secret, ok := changed.(*corev1.Secret); ok {
			turn(secret)
		}
		// This does not use ctx because it is unknown whether a canceled write was done.
		if err := f.client.Update(context.Background(), changed); err != nil {
			f.disturbed(t, i, err)
		} else {
			f.forged[i] = changed
		}
		if ctx.Err() != nil {
			return
		}
		time.Sleep(forgingPause)
	}
}

// disturbed reports each forgery once that another client has written or removed, and continues with the current
// object.
func (f *forger) disturbed(t *testing.T, i int, err error) {
	t.Helper()
	object := f.forged[i].DeepCopyObject().(client.Object)
	if !f.told[object.GetUID()] {
		t.Errorf("forging %s: %s", object.GetName(), err)
	}
	f.told[object.GetUID()] = true
	if err := f.client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err == nil {
		f.forged[i] = object
	}
}

// withUID returns a KVMConfig with its UID, which the forger may know, once it exists.
func withUID(ctx context.Context, config *v1alpha1.KVMConfig) *v1alpha1.KVMConfig {
	current := &v1alpha1.KVMConfig{}
	if err := theLab.Client.Get(ctx, client.ObjectKeyFromObject(config), current); err == nil {
		return current
	}
	return config
}

// broken is the prefix of invalid content.
const broken = "broken "

// turn makes content invalid, or valid again.
func turn(secret *corev1.Secret) {
	for name, value := range secret.Data {
		if rest, found := bytes.CutPrefix(value, []byte(broken)); found {
			secret.Data[name] = rest
		} else {
			secret.Data[name] = append([]byte(broken), value...)
		}
	}
}

// awaitRounds waits until each forgery has made every claim while the operators see the current state.
func (f *forger) awaitRounds(t *testing.T) {
	t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.rounds
	}
	for want, enough := count()+1, count()+len(claims(&v1alpha1.KVMConfig{}, ""))+1; want <= enough; want++ {
		lab.Eventually(t, lab.Timeout, func() error {
			if n := count(); n < want {
				return fmt.Errorf("%d of %d rounds", n, enough)
			}
			return nil
		})
	}
}

// untouched fails when another client has changed or deleted a forgery or created another object in the namespace, or
// when the operator has sent a request for the namespace.
func (f *forger) untouched(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	versions := map[types.UID]string{}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		for _, object := range listed(t, list, f.namespace) {
			versions[object.GetUID()] = object.GetResourceVersion()
			if object.GetLabels()[labelHandler] == "" && object.GetName() != "kube-root-ca.crt" {
				t.Errorf("%T %s/%s was made", object, f.namespace, object.GetName())
			}
		}
	}
	for _, object := range f.forged {
		if versions[object.GetUID()] != object.GetResourceVersion() {
			t.Errorf("%T %s has version %q, want that of the forger, %q", object, object.GetName(), versions[object.GetUID()], object.GetResourceVersion())
		}
	}
	for _, request := range theOperator.Requests.All() {
		_, kind, inside := strings.Cut(request.Path, "/namespaces/"+f.namespace+"/")
		if inside && !strings.HasPrefix(kind, "kvmconfigs/") && !strings.HasPrefix(kind, "events") {
			t.Errorf("the operator asked for %v", request)
		}
	}
}

// repent removes the finalizers from all forgeries and deletes those that are not being deleted.
func (f *forger) repent(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, object := range f.forged {
		free(t, object)
		if err := theLab.Client.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	f.forged = nil
}

// foundIn returns the Secrets and ConfigMaps of a namespace that contain data which only the forger knows.
func (f *forger) foundIn(t *testing.T, namespace string) (found []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, object := range append(listed(t, &corev1.SecretList{}, namespace), listed(t, &corev1.ConfigMapList{}, namespace)...) {
		text := contentOf(object)
		for _, forged := range f.forged {
			if secret, ok := forged.(*corev1.Secret); ok && holdsAny(text, secret.Data) {
				found = append(found, fmt.Sprintf("%T %s: %s", object, object.GetName(), secret.Name))
			}
		}
	}
	return found
}

// holdsAny reports whether a text contains one of the values, as it is or encoded as in kubeconfigs, with or without
// the last line break.
func holdsAny(text string, values map[string][]byte) bool {
	for _, value := range values {
		value = bytes.TrimSpace(bytes.TrimPrefix(value, []byte(broken)))
		whole := value[:len(value)/3*3]
		if strings.Contains(text, string(value)) || strings.Contains(text, string(base64Of(whole))) {
			return true
		}
	}
	return false
}

// contentOf returns the data of a Secret or ConfigMap, with boot data unpacked.
func contentOf(object client.Object) string {
	values := map[string][]byte{}
	switch o := object.(type) {
	case *corev1.Secret:
		values = o.Data
	case *corev1.ConfigMap:
		for name, value := range o.Data {
			values[name] = []byte(value)
		}
	}
	var text strings.Builder
	for _, value := range values {
		text.Write(value)
		text.WriteString(unpacked(value))
	}
	return text.String()
}

// unpacked returns the text of boot data, which is base64 of gzip of JSON with percent-encoded files. It is empty for
// other data.
func unpacked(value []byte) string {
	packed, err := base64.StdEncoding.DecodeString(string(value))
	if err != nil {
		return ""
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return ""
	}
	return strings.NewReplacer("%2B", "+", "%2F", "/", "%3D", "=", "%0A", "\n", "%20", " ").Replace(string(text))
}

func listed(t *testing.T, list client.ObjectList, namespace string) (objects []client.Object) {
	t.Helper()
	if err := theLab.Client.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, item.(client.Object))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
