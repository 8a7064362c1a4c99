package behaviour_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// clusterIn returns a cluster whose KVMConfig lies in the namespace, which is created if it does not exist.
func clusterIn(t *testing.T, namespace, id string) *v1alpha1.KVMConfig {
	t.Helper()
	makeNamespace(t, namespace)
	config := makeCluster(id).Workers(1).Obj()
	config.Namespace = namespace
	return config
}

// TestMalloryForgesSecretsAndConfigMaps: the user mallory may write these in one namespace, which exists before the
// clusters and sorts before that of their KVMConfigs. Mallory forges objects of clusters while they are created, rolled
// out and deleted. The clusters end up as they would without the forgeries.
func TestMalloryForgesSecretsAndConfigMaps(t *testing.T) {
	t.Parallel()
	mallory := newForger(t, "mallory", "mallory", secretsAndConfigMaps)
	calm, victim, ends := clusterIn(t, "victims", "mal0"), clusterIn(t, "victims", "mal1"), clusterIn(t, "victims", "mal2")
	mallory.seesNothing(t, "victims")
	mallory.forge(t, victim)
	mallory.forge(t, ends)
	stop := mallory.keepForging(t, victim, ends)

	create(t, calm, victim, ends)
	theLab.AwaitReady(t, calm, victim, ends)
	mallory.awaitRounds(t)
	t.Run("a cluster is made as without her", func(t *testing.T) { isAs(t, calm, victim, mallory) })
	t.Run("a cluster that is Ready is at rest", func(t *testing.T) { isAtRest(t, victim, mallory) })
	t.Run("a cluster is rolled as without her", func(t *testing.T) {
		keys := keysOf(t, victim)
		change(t, calm, addSSHKey)
		change(t, victim, addSSHKey)
		theLab.AwaitReady(t, calm, victim)
		isAs(t, calm, victim, mallory)
		if diff := cmp.Diff(keys, keysOf(t, victim)); diff != "" {
			t.Errorf("keys are others than before (-before +after):\n%s", diff)
		}
	})
	t.Run("a cluster is deleted, whatever she holds", func(t *testing.T) {
		theLab.Delete(t, ends)
		theLab.AwaitGone(t, ends)
		theLab.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mal2"}})
		if left := dumpOf(t, ends, mallory); len(left) > 0 {
			t.Errorf("%v are left", names(left))
		}
	})
	mallory.awaitRounds(t)
	stop()
	isAs(t, calm, victim, mallory)
	mallory.untouched(t)
	mallory.repent(t)
}

// isAs fails when a cluster differs from another one, or contains data that only mallory knows.
func isAs(t *testing.T, calm, victim *v1alpha1.KVMConfig, mallory *forger) {
	t.Helper()
	if diff := cmp.Diff(dumpOf(t, calm, mallory), dumpOf(t, victim, mallory)); diff != "" {
		t.Errorf("the cluster is not as one is without mallory (-without +with):\n%s", diff)
	}
	for _, namespace := range []string{victim.Namespace, key.Namespace(victim.Spec.Cluster.ID)} {
		if found := mallory.foundIn(t, namespace); len(found) > 0 {
			t.Errorf("namespace %s has what is mallory's: %v", namespace, found)
		}
	}
	verifyKubeconfig(t, victim)
	var authorities []string
	for _, request := range state.CertificateRequests(state.WithDefaults(victim), lab.Settings()) {
		if request.Usage == pki.UsageAuthority {
			authorities = append(authorities, request.Name)
		}
	}
	for _, name := range authorities {
		if secret := secretOf(t, victim, name); !bytes.Equal(secret.Data["ca"], secret.Data["crt"]) {
			t.Errorf("CA %s is not the only trusted one", name)
		}
	}
}

// dumpOf returns the dump of a cluster without the objects that mallory claims for it, and without names of pods and
// addresses, which differ between clusters.
func dumpOf(t *testing.T, config *v1alpha1.KVMConfig, mallory *forger) map[string]string {
	t.Helper()
	dump := theLab.Dump(t, config)
	maps.DeleteFunc(dump, func(name, _ string) bool {
		return strings.Contains(name, " "+mallory.namespace+"/") || strings.HasPrefix(name, "Endpoint")
	})
	return dump
}

// keysOf returns the content of a cluster's Secrets with keys, and of its kubeconfig.
func keysOf(t *testing.T, config *v1alpha1.KVMConfig) map[string]map[string][]byte {
	t.Helper()
	id, keys := config.Spec.Cluster.ID, map[string]map[string][]byte{}
	for _, object := range listed(t, &corev1.SecretList{}, config.Namespace) {
		if strings.HasPrefix(object.GetName(), key.SecretName(id, "")) {
			keys[object.GetName()] = object.(*corev1.Secret).Data
		}
	}
	if len(keys) < 10 {
		t.Fatalf("cluster %s has %d Secrets, and most are overlooked", id, len(keys))
	}
	kubeconfig := &corev1.Secret{ObjectMeta: in(config, key.KubeconfigName(id))}
	theLab.Get(t, kubeconfig)
	keys[kubeconfig.Name] = kubeconfig.Data
	return keys
}

// isAtRest fails when the operator sends a request for a cluster, replaces a machine or writes something while
// forgeries make every claim.
func isAtRest(t *testing.T, config *v1alpha1.KVMConfig, mallory *forger) {
	t.Helper()
	lab.AwaitSteadyTokens(t)
	id := config.Spec.Cluster.ID
	objects := slices.DeleteFunc(theLab.Objects(t, config), func(o client.Object) bool { return o.GetNamespace() == mallory.namespace })
	before, pods, requests := versionsOf(t, objects...), podUIDs(t, config, "m0aaa", "w0aaa"), len(theOperator.Requests.Of(id))
	mallory.awaitRounds(t)
	if since := theOperator.Requests.Of(id)[requests:]; len(since) > 0 {
		t.Errorf("the operator asked for %v", since)
	}
	if after := versionsOf(t, objects...); after != before {
		t.Errorf("objects of the cluster were written: %s became %s", before, after)
	}
	if after := podUIDs(t, config, "m0aaa", "w0aaa"); !slices.Equal(pods, after) {
		t.Error("a machine was replaced")
	}
}

// TestMalloryBesideTheKVMConfigWouldSucceed: in the KVMConfig's namespace, where only trusted users may write, the
// operator accepts forgeries and waits for them. This shows that the attempts in other namespaces could succeed if the
// operator looked there.
func TestMalloryBesideTheKVMConfigWouldSucceed(t *testing.T) {
	t.Parallel()
	config := clusterIn(t, "trusting", "mal3")
	trusted := newForger(t, "trusted", "trusting", secretsAndConfigMaps)
	offered, claimed := map[string]bool{}, map[string]bool{}
	for _, object := range trusted.forgeries(t, config) {
		secret, ok := object.(*corev1.Secret)
		switch {
		case ok && strings.HasPrefix(secret.Name, "offered-mal3-") && strings.HasSuffix(secret.Name, "ca"):
			offered[secret.Name] = true
		case ok && secret.Name == key.SecretName("mal3", state.KeyEncryption):
			secret.Annotations = key.OwnerKVMConfig(config, "randomkey").Annotations()
			secret.Finalizers = held
			claimed[secret.Name] = true
		default:
			continue
		}
		if err := trusted.client.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		trusted.forged = append(trusted.forged, secret)
	}
	if len(offered) != 3 || len(claimed) != 1 {
		t.Fatalf("offered are %v, claimed %v, want three CAs and one key", offered, claimed)
	}
	createReady(t, config)
	for _, name := range []string{pki.CA, pki.EtcdCA, pki.FrontProxyCA} {
		if theLab.Exists(t, &corev1.Secret{ObjectMeta: beside(config, name)}) {
			t.Errorf("the CA %s that was offered is not adopted", name)
		}
	}
	found := strings.Join(trusted.foundIn(t, "mal3"), "; ")
	for _, want := range []string{"Secret mal3-kubeconfig: offered-mal3-ca", "ConfigMap master-mal3-m0aaa: offered-mal3-etcd-ca", "Secret master-mal3-m0aaa: mal3-encryption"} {
		if !strings.Contains(found, want) {
			t.Errorf("%q is not in use, but %s", want, found)
		}
	}
	theLab.Delete(t, config)
	lab.Eventually(t, lab.Timeout, func() error { return waitsFor(t, config, "Secret trusting/mal3-encryption") })
	for _, object := range trusted.forged {
		free(t, object)
	}
	theLab.AwaitGone(t, config)
}

// waitsFor returns an error unless the deletion of a KVMConfig waits for an object.
func waitsFor(t *testing.T, config *v1alpha1.KVMConfig, object string) error {
	t.Helper()
	conditions := theLab.Current(t, config).Status.Conditions
	waits := func(c metav1.Condition) bool { return c.Reason == "Deleting" && strings.Contains(c.Message, object) }
	if !slices.ContainsFunc(conditions, waits) {
		return fmt.Errorf("no condition says that %s is waited for: %+v", object, conditions)
	}
	return nil
}

// TestMalloryInTheNamespaceOfAClusterToBe: a namespace that existed before the cluster of its name does not belong to
// the cluster. The operator does not trust, change or wait for mallory's objects in it. An administrator who hands the
// namespace over also hands over its content.
func TestMalloryInTheNamespaceOfAClusterToBe(t *testing.T) {
	t.Parallel()
	mallory := newForger(t, "mallory-before", "mal4", secretsAndConfigMaps)
	config := clusterIn(t, "victims", "mal4")
	mallory.seesNothing(t, "victims")
	mallory.forge(t, config)
	stop := mallory.keepForging(t, config)
	create(t, config)
	notOwned := lab.Condition{Type: "NamespaceReady", Status: metav1.ConditionFalse, Reason: "NotOwned"}
	theLab.AwaitCondition(t, config, notOwned)
	mallory.awaitRounds(t)
	theLab.AwaitCondition(t, config, notOwned)
	theLab.Delete(t, config)
	theLab.AwaitGone(t, config)
	stop()
	mallory.untouched(t)
	if found := mallory.foundIn(t, "victims"); len(found) > 0 {
		t.Errorf("what is mallory's was used: %v", found)
	}

	mallory.repent(t)
	theirs := &corev1.Secret{ObjectMeta: in(config, key.KubeconfigName("mal4")), Data: map[string][]byte{"kubeConfig": []byte("mallory's")}}
	theirs.Annotations = key.OwnerKVMConfig(config, "kubeconfig").Annotations()
	if err := mallory.client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	change(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mal4"}}, func(n *corev1.Namespace) {
		metav1.SetMetaDataLabel(&n.ObjectMeta, key.LabelGSCluster, "mal4")
	})
	config = clusterIn(t, "victims", "mal4")
	createReady(t, config)
	verifyKubeconfig(t, config)
}

// TestMalloryOfAnotherTenantTakesNoCluster: mallory may write KVMConfigs, their status, Secrets and ConfigMaps in one
// namespace, and uses the names of others' clusters there. Mallory's KVMConfigs report a problem, and the other
// clusters are not affected.
func TestMalloryOfAnotherTenantTakesNoCluster(t *testing.T) {
	t.Parallel()
	victim := createReady(t, clusterIn(t, "tenant-a", "mal5"))
	mallory := newForger(t, "mallory-b", "tenant-b", secretsAndConfigMaps, kvmConfigs)
	mallory.seesNothing(t, "tenant-a")
	same, otherName, ofNamespace := clusterIn(t, "tenant-b", "mal5"), clusterIn(t, "tenant-b", "mal5"), clusterIn(t, "tenant-b", "tenant-a")
	otherName.Name = "another"
	mallory.forge(t, victim)
	stop := mallory.keepForging(t, victim)
	told := map[*v1alpha1.KVMConfig]string{same: "OwnedByOther", otherName: "OwnedByOther", ofNamespace: "NotOwned"}
	staysAsItIs(t, victim, mallory, func() {
		for config := range told {
			mallory.declare(t, config)
		}
		mallory.awaitRounds(t)
		for config, reason := range told {
			theLab.AwaitCondition(t, config, lab.Condition{Type: "NamespaceReady", Status: metav1.ConditionFalse, Reason: reason})
			theLab.Delete(t, config)
			theLab.AwaitGone(t, config)
		}
	})
	stop()
	mallory.untouched(t)
	mallory.repent(t)
}

// declare creates a KVMConfig whose status claims the namespace.
func (f *forger) declare(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error { return f.client.Create(context.Background(), config.DeepCopy()) })
	lab.Eventually(t, lab.Timeout, func() error {
		current := &v1alpha1.KVMConfig{}
		if err := f.client.Get(context.Background(), client.ObjectKeyFromObject(config), current); err != nil {
			return err
		}
		meta.SetStatusCondition(&current.Status.Conditions, metav1.Condition{Type: state.ConditionNamespace, Status: metav1.ConditionTrue, Reason: "Done"})
		return f.client.Status().Update(context.Background(), current)
	})
}

// staysAsItIs fails when an object of a cluster is written or a machine is replaced while elsewhere runs.
func staysAsItIs(t *testing.T, config *v1alpha1.KVMConfig, mallory *forger, elsewhere func()) {
	t.Helper()
	lab.AwaitSteadyTokens(t)
	objects := slices.DeleteFunc(theLab.Objects(t, config), func(o client.Object) bool { return o.GetNamespace() == mallory.namespace })
	if len(objects) < 20 {
		t.Fatalf("cluster %s has %d objects, and most are overlooked", config.Name, len(objects))
	}
	before, keys, pods := versionsOf(t, objects...), keysOf(t, config), podUIDs(t, config, "m0aaa", "w0aaa")
	elsewhere()
	theLab.AwaitReady(t, config)
	if after := versionsOf(t, objects...); after != before {
		t.Errorf("objects of the cluster were written: %s became %s", before, after)
	}
	if diff := cmp.Diff(keys, keysOf(t, config)); diff != "" {
		t.Errorf("keys are others than before (-before +after):\n%s", diff)
	}
	if after := podUIDs(t, config, "m0aaa", "w0aaa"); !slices.Equal(pods, after) {
		t.Error("a machine was replaced")
	}
}

// TestMalloryChoosesIDsWhoseNamesCollide: the API server rejects a cluster whose objects would have the names of those
// of a cluster mal6, such as the ClusterRoleBinding mal6-psp and the Secret mal6-etcd-ca.
func TestMalloryChoosesIDsWhoseNamesCollide(t *testing.T) {
	t.Parallel()
	mallory := newForger(t, "mallory-d", "tenant-d", kvmConfigs, secretsAndConfigMaps)
	try := func(id string) error {
		return mallory.client.Create(t.Context(), clusterIn(t, "tenant-d", id), client.DryRunAll)
	}
	lab.Eventually(t, lab.Timeout, func() error { return try("mal6-other") })
	for _, id := range []string{"mal6-psp", "mal6-etcd", "mal6-etcd-x"} {
		if err := try(id); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "objects of another cluster may have such names") {
			t.Errorf("id %s: %v, want that it is refused because of names", id, err)
		}
	}
}
