package behaviour_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// encryptionKey is a key as the original operator's companion creates it: base64 of 32 bytes.
const encryptionKey = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// certOperator creates Secrets by the contract of the original cert-operator, in its own namespace.
type certOperator struct {
	namespace, cluster string
	pairs              pki.Set
}

func newCertOperator(t *testing.T, config *v1alpha1.KVMConfig) certOperator {
	t.Helper()
	o := certOperator{namespace: "certs-" + config.Spec.Cluster.ID, cluster: config.Spec.Cluster.ID}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}})
	requests := pki.Requests(state.WithDefaults(config).Spec.Cluster, "cluster.local")
	completed, err := pkitest.Complete(nil, requests, pki.Embedded{Clock: clock.RealClock{}}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	o.pairs = completed.Set
	return o
}

func (o certOperator) secret(name string) *corev1.Secret {
	pair := o.pairs[name]
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.cluster + "-" + name, Labels: map[string]string{
			key.LabelGSCluster: o.cluster, key.LabelCertificate: name, "clusterComponent": name, "clusterID": o.cluster,
		}},
		Data: map[string][]byte{"ca": pair.CA, "crt": pair.Certificate, "key": pair.Key},
	}
}

func (o certOperator) key(name, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.cluster + "-" + name, Labels: map[string]string{
			key.LabelGSCluster: o.cluster, key.LabelRandomKey: name,
		}},
		Data: map[string][]byte{name: []byte(value)},
	}
}

func TestSecretsOfOthersAreNeverUsed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id      string
		disturb func(*corev1.Secret)
	}{
		"of another cluster": {id: "sec1", disturb: func(s *corev1.Secret) { s.Labels[key.LabelGSCluster] = "sec1x" }},
		"of another name":    {id: "sec2", disturb: func(s *corev1.Secret) { s.Labels[key.LabelCertificate] = "prometheus" }},
		"without the label":  {id: "sec3", disturb: func(s *corev1.Secret) { delete(s.Labels, key.LabelCertificate) }},
		"that another object has": {id: "sec4", disturb: func(s *corev1.Secret) {
			s.Annotations = map[string]string{ownership.Annotation: "default/other/certificates"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := makeCluster(test.id).Obj()
			others := newCertOperator(t, config).secret(pki.API)
			test.disturb(others)
			create(t, others)
			createReady(t, config)
			verifyKubeconfig(t, config)
			own := &corev1.Secret{ObjectMeta: beside(config, pki.API)}
			theLab.Get(t, own)
			if bytes.Equal(own.Data["crt"], others.Data["crt"]) {
				t.Error("the certificate of another owner was adopted")
			}
		})
	}
}

func TestExistingSecretsAreAdoptedUnchanged(t *testing.T) {
	t.Parallel()
	config := makeCluster("sec5").Obj()
	o := newCertOperator(t, config)
	ca, api, encryption := o.secret(pki.CA), o.secret(pki.API), o.key("encryption", encryptionKey)
	create(t, ca, api, encryption)
	before := versionsOf(t, ca, api, encryption)
	createReady(t, config)

	kubeconfig := &corev1.Secret{ObjectMeta: in(config, "sec5-kubeconfig")}
	theLab.Get(t, kubeconfig)
	admin := &corev1.Secret{ObjectMeta: beside(config, pki.Admin)}
	theLab.Get(t, admin)
	if !bytes.Equal(admin.Data["ca"], ca.Data["crt"]) || !bytes.Contains(kubeconfig.Data["kubeConfig"], base64Of(admin.Data["crt"])) {
		t.Error("the kubeconfig does not hold the administrator's certificate, signed by the adopted authority")
	}
	if bytes.Contains(kubeconfig.Data["kubeConfig"], base64Of(api.Data["crt"])) {
		t.Error("the kubeconfig holds the API server's certificate")
	}
	worker := &corev1.Secret{ObjectMeta: beside(config, pki.Worker)}
	theLab.Get(t, worker)
	if !bytes.Equal(worker.Data["ca"], ca.Data["crt"]) {
		t.Error("what is missing was not issued under the adopted authority")
	}
	for _, name := range []string{pki.CA, pki.API, "encryption"} {
		if theLab.Exists(t, &corev1.Secret{ObjectMeta: beside(config, name)}) {
			t.Errorf("there is a second Secret for %s", name)
		}
	}
	theLab.Delete(t, config)
	theLab.AwaitGone(t, config)
	awaitNothingLeft(t, config)
	if after := versionsOf(t, ca, api, encryption); after != before {
		t.Errorf("adopted Secrets were written: %s became %s", before, after)
	}
}

func TestMalformedSecretBlocksOnlyWhatNeedsIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id     string
		secret func(certOperator) *corev1.Secret
		want   lab.Condition
	}{
		"certificate": {
			id: "sec6", secret: func(o certOperator) *corev1.Secret {
				s := o.secret(pki.API)
				s.Data["crt"] = []byte("nonsense")
				return s
			},
			want: lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "SecretMalformed",
				Message: `Secret certs-sec6/sec6-api: key "crt": it is not a PEM certificate; correct it, or delete the Secret to get new certificates`},
		},
		"key": {
			id: "sec7", secret: func(o certOperator) *corev1.Secret { s := o.secret(pki.Etcd); s.Data["key"] = nil; return s },
			want: lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "SecretMalformed",
				Message: `Secret certs-sec7/sec7-etcd: key "key" is empty; correct it, or delete the Secret to get new certificates`},
		},
		"encryption key": {
			id: "sec8", secret: func(o certOperator) *corev1.Secret { return o.key("encryption", "short") },
			want: lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "SecretMalformed",
				Message: `Secret certs-sec8/sec8-encryption: key "encryption" does not hold a valid encryption; restore the right one`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := makeCluster(test.id).Obj()
			o := newCertOperator(t, config)
			secret := test.secret(o)
			create(t, secret, config)
			theLab.AwaitCondition(t, config, test.want, goesOn("NamespaceReady"), goesOn("InfrastructureReady"),
				lab.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "SecretMalformed"})
			createReady(t, makeCluster(test.id+"n").Obj())

			repaired := map[string]*corev1.Secret{"sec6": o.secret(pki.API), "sec7": o.secret(pki.Etcd), "sec8": o.key("encryption", encryptionKey)}[test.id]
			change(t, secret, func(s *corev1.Secret) { s.Data = repaired.Data })
			theLab.AwaitReady(t, config)
		})
	}
}

func TestSecretThatBreaksLaterLeavesTheMachinesAlone(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("sec9").Workers(1).Obj())
	uids := podUIDs(t, config, "m0aaa", "w0aaa")
	secret := &corev1.Secret{ObjectMeta: beside(config, pki.API)}
	theLab.Get(t, secret)
	right := maps.Clone(secret.Data)
	change(t, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{} })
	theLab.AwaitCondition(t, config, lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "SecretMalformed"}, goesOn("InfrastructureReady"))
	change(t, secret, func(s *corev1.Secret) { s.Data = right })
	theLab.AwaitReady(t, config)
	if after := podUIDs(t, config, "m0aaa", "w0aaa"); after[0] != uids[0] || after[1] != uids[1] {
		t.Error("a machine was replaced on the way")
	}
}

// TestWhatMachinesCannotDoWithoutIsNotMadeASecondTime covers the key that encrypts data in etcd, and the key that
// verifies service account tokens.
func TestWhatMachinesCannotDoWithoutIsNotMadeASecondTime(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("sec10").Workers(1).Obj())
	uids := podUIDs(t, config, "m0aaa", "w0aaa")
	for name, condition := range map[string]string{"encryption": "CertificatesReady", pki.ServiceAccount: "CertificatesReady"} {
		secret := &corev1.Secret{ObjectMeta: beside(config, name)}
		theLab.Get(t, secret)
		saved := secret.DeepCopy()
		saved.ResourceVersion, saved.UID = "", ""
		lose(t, config, secret, condition)
		create(t, saved)
		theLab.AwaitReady(t, config)
		if theLab.Get(t, secret); !maps.EqualFunc(secret.Data, saved.Data, bytes.Equal) {
			t.Errorf("Secret %s has other keys than before", secret.Name)
		}
	}
	if after := podUIDs(t, config, "m0aaa", "w0aaa"); after[0] != uids[0] || after[1] != uids[1] {
		t.Error("a machine was replaced on the way")
	}
}

// lose deletes a Secret until its loss is reported. A reconcile that has read the Secret just before restores the same
// key.
func lose(t *testing.T, config *v1alpha1.KVMConfig, secret *corev1.Secret, condition string) {
	t.Helper()
	ctx, had := context.Background(), maps.Clone(secret.Data)
	lab.Eventually(t, lab.Timeout, func() error {
		err := theLab.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if err == nil {
			if !maps.EqualFunc(secret.Data, had, bytes.Equal) {
				t.Fatalf("Secret %s was made a second time, with another key", secret.Name)
			}
			err = theLab.Client.Delete(ctx, secret)
		}
		have := meta.FindStatusCondition(theLab.Current(t, config).Status.Conditions, condition)
		if have.Status != metav1.ConditionFalse || have.Reason != "KeyMissing" {
			return errors.Join(client.IgnoreNotFound(err), fmt.Errorf("KVMConfig %s has the condition %+v", config.Name, have))
		}
		return client.IgnoreNotFound(err)
	})
	if theLab.Exists(t, secret) {
		t.Errorf("Secret %s was created after its loss had been reported", secret.Name)
	}
	theLab.AwaitCondition(t, config, goesOn("InfrastructureReady"))
}

// TestSecretWithoutItsLabelsIsNotReplacedByAnother: the operator reports it because it could not keep a replacement.
func TestSecretWithoutItsLabelsIsNotReplacedByAnother(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("sec11").Obj())
	uids := podUIDs(t, config, "m0aaa")
	secret := &corev1.Secret{ObjectMeta: beside(config, pki.API)}
	theLab.Get(t, secret)
	change(t, secret, func(s *corev1.Secret) {
		delete(s.Labels, key.LabelCertificate)
		delete(s.Annotations, ownership.Annotation)
	})
	theLab.AwaitCondition(t, config, lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "SecretMalformed"}, goesOn("InfrastructureReady"))
	change(t, secret, func(s *corev1.Secret) { s.Labels[key.LabelCertificate] = pki.API })
	theLab.AwaitReady(t, config)
	if after := podUIDs(t, config, "m0aaa"); after[0] != uids[0] {
		t.Error("a machine was replaced on the way")
	}
}

// goesOn is the condition of a step that the problem does not affect.
func goesOn(conditionType string) lab.Condition {
	return lab.Condition{Type: conditionType, Status: metav1.ConditionTrue}
}
