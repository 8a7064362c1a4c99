package state

import (
	"encoding/base64"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Keys of a certificate Secret, by the contract of the original's cert-operator.
const (
	SecretKeyCA          = "ca"
	SecretKeyCertificate = "crt"
	SecretKeyKey         = "key"
)

// Keys of a CA's Secret while its rotation is being prepared.
const (
	secretKeyNextCertificate = "next.crt"
	secretKeyNextKey         = "next.key"
)

// Keys of a CA's Secret with the paths of the issuers in Vault that have its key, and that of its successor.
const (
	secretKeyVault     = "vault"
	secretKeyNextVault = "next.vault"
)

// Secrets are the Secrets of a cluster, sorted by their contents.
type Secrets struct {
	// Pairs and Keys are what was found, by name; Adopted says which of them another party owns.
	Pairs   pki.Set
	Keys    map[string]string
	Adopted map[string]bool
	// Versions are the resource versions of the Secrets of the pairs.
	Versions map[string]string
	// Generations are those of the CAs, see AnnotationAuthorityGeneration.
	Generations map[string]int64
	// PairsErr and KeysErr name the Secrets that are malformed.
	PairsErr, KeysErr error
	// malformed are the names of the contents of malformed Secrets, which must not be generated again.
	malformed map[string]bool
	// authorities are the common names of the requested CAs, by name.
	authorities map[string]string
}

// ReadSecrets sorts the Secrets of a cluster. The cluster's own Secrets are in the namespace of the KVMConfig and have
// the names that the operator gives. They take precedence over those that are adopted: Secrets with the label of the
// cluster's ID and without an owner, in the namespace of the KVMConfig or in one of the namespaces adoptFrom. All
// others are ignored regardless of their metadata, because anyone who may create a Secret in some namespace may set
// labels and annotations.
func ReadSecrets(secrets []corev1.Secret, config *v1alpha1.KVMConfig, adoptFrom []string, requests []pki.Request) Secrets {
	id := config.Spec.Cluster.ID
	requested := map[string]bool{}
	for _, r := range requests {
		requested[r.Name] = true
	}
	read := Secrets{
		Pairs: pki.Set{}, Keys: map[string]string{}, Adopted: map[string]bool{}, Versions: map[string]string{}, Generations: map[string]int64{},
		malformed: map[string]bool{}, authorities: authoritiesOf(requests),
	}
	ours := slices.DeleteFunc(slices.Clone(secrets), func(s corev1.Secret) bool {
		return !own(&s, config) && !offered(&s, config, adoptFrom)
	})
	slices.SortFunc(ours, func(a, b corev1.Secret) int {
		if own := ownFirst(a) - ownFirst(b); own != 0 {
			return own
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for i := range ours {
		if ours[i].Labels[key.LabelGSCluster] == id && named(&ours[i], id) {
			read.labeled(&ours[i], requested)
		}
	}
	for i := range ours {
		if ours[i].Namespace == config.Namespace {
			read.unlabeled(&ours[i], id, requested)
		}
	}
	return read
}

// own returns whether the operator created a Secret for the KVMConfig, by its owner and its place.
func own(s *corev1.Secret, config *v1alpha1.KVMConfig) bool {
	return inOwnPlace(s, config) && (key.OwnerKVMConfig(config, "certificates").Names(s.Annotations) || key.OwnerKVMConfig(config, "randomkey").Names(s.Annotations))
}

// offered returns whether a Secret without an owner may be adopted.
func offered(s *corev1.Secret, config *v1alpha1.KVMConfig, adoptFrom []string) bool {
	here := s.Namespace == config.Namespace || slices.Contains(adoptFrom, s.Namespace)
	return here && !ownership.Has(s.Annotations) && key.OfCluster(s.Labels, config.Spec.Cluster.ID)
}

// named returns whether a Secret of the cluster's own has the name that the operator gives to its contents.
func named(s *corev1.Secret, id string) bool {
	return !ownership.Has(s.Annotations) || slices.ContainsFunc([]string{s.Labels[key.LabelCertificate], s.Labels[key.LabelRandomKey]}, func(name string) bool {
		return name != "" && s.Name == key.SecretName(id, name)
	})
}

func (r *Secrets) labeled(secret *corev1.Secret, requested map[string]bool) {
	owned := ownership.Has(secret.Annotations)
	// A pair of another party that is not requested does not belong to the cluster, regardless of its labels.
	if name := secret.Labels[key.LabelCertificate]; name != "" && (owned || requested[name]) {
		r.pair(name, secret, !owned)
	}
	if name := secret.Labels[key.LabelRandomKey]; name != "" {
		r.key(name, secret, !owned)
	}
}

// unlabeled rejects a Secret that has the name of one of the cluster's own but not its labels: a pair or key that was
// generated instead could not be stored, and would differ each time.
func (r *Secrets) unlabeled(secret *corev1.Secret, id string, requested map[string]bool) {
	name, found := strings.CutPrefix(secret.Name, key.SecretName(id, ""))
	isKey := slices.Contains(RandomKeys, name)
	if !found || r.malformed[name] || !isKey && !requested[name] {
		return
	}
	label, errs := key.LabelCertificate, &r.PairsErr
	_, known := r.Pairs[name]
	if isKey {
		label, errs = key.LabelRandomKey, &r.KeysErr
		_, known = r.Keys[name]
	}
	if known {
		return
	}
	r.malformed[name] = true
	*errs = errors.Join(*errs, problem.Newf("SecretMalformed", "Secret %s/%s lacks the labels %s=%s and %s=%s; set them, or delete the Secret if it is not needed",
		secret.Namespace, secret.Name, key.LabelGSCluster, id, label, name))
}

func ownFirst(s corev1.Secret) int {
	if ownership.Has(s.Annotations) {
		return 0
	}
	return 1
}

func (r *Secrets) pair(name string, secret *corev1.Secret, adopted bool) {
	if _, seen := r.Pairs[name]; seen || r.malformed[name] {
		return
	}
	pair := pki.KeyPair{
		CA: secret.Data[SecretKeyCA], Certificate: secret.Data[SecretKeyCertificate], Key: secret.Data[SecretKeyKey],
		NextCertificate: secret.Data[secretKeyNextCertificate], NextKey: secret.Data[secretKeyNextKey],
		Vault: string(secret.Data[secretKeyVault]), NextVault: string(secret.Data[secretKeyNextVault]),
	}
	if err := errors.Join(checkPair(secret, pair), checkVault(secret, pair, r.authorities[name])); err != nil {
		r.malformed[name] = true
		r.PairsErr = errors.Join(r.PairsErr, err)
		return
	}
	r.Pairs[name], r.Adopted[name], r.Versions[name] = pair, adopted, secret.ResourceVersion
	r.Generations[name] = generation(secret)
}

// CertificateSecret returns the Secret of a pair. It replaces the version that was read, if there was one.
func (s *Cluster) CertificateSecret(name string, pair pki.KeyPair, version string) *corev1.Secret {
	meta := s.Meta(key.SecretName(s.ID(), name), map[string]string{key.LabelCertificate: name})
	meta.Namespace, meta.ResourceVersion = s.Config.Namespace, version
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
		SecretKeyCA: pair.CA, SecretKeyCertificate: pair.Certificate, SecretKeyKey: pair.Key,
	}}
	if len(pair.NextCertificate) > 0 {
		secret.Data[secretKeyNextCertificate], secret.Data[secretKeyNextKey] = pair.NextCertificate, pair.NextKey
	}
	for name, path := range map[string]string{secretKeyVault: pair.Vault, secretKeyNextVault: pair.NextVault} {
		if path != "" {
			secret.Data[name] = []byte(path)
		}
	}
	return secret
}

// MarkGeneration records that a CA has the generation that the KVMConfig requests.
func (s *Cluster) MarkGeneration(secret *corev1.Secret) {
	if generation := s.AuthorityGeneration(); generation > 0 {
		secret.Annotations = map[string]string{key.AnnotationAuthorityGeneration: strconv.FormatInt(generation, 10)}
	}
}

// generation returns the generation of a CA; 0 before its rotation was ever requested.
func generation(secret *corev1.Secret) int64 {
	n, err := strconv.ParseInt(secret.Annotations[key.AnnotationAuthorityGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func checkPair(secret *corev1.Secret, pair pki.KeyPair) error {
	ref := secret.Namespace + "/" + secret.Name
	for _, name := range []string{SecretKeyCA, SecretKeyCertificate} {
		if _, err := pki.ParseCertificate(secret.Data[name]); err != nil {
			return problem.Newf("SecretMalformed", "Secret %s: key %q: %s; correct it, or delete the Secret to get new certificates", ref, name, err)
		}
	}
	next := len(pair.NextKey) + len(pair.NextVault)
	if _, err := pki.ParseCertificate(pair.NextCertificate); len(pair.NextCertificate)+next > 0 && (err != nil || next == 0) {
		return problem.Newf("SecretMalformed", "Secret %s: keys %q and %q are not a valid next CA; remove both to get a new one",
			ref, secretKeyNextCertificate, secretKeyNextKey)
	}
	if len(pair.Key)+len(pair.Vault) == 0 {
		return problem.Newf("SecretMalformed", "Secret %s: key %q is empty; correct it, or delete the Secret to get new certificates", ref, SecretKeyKey)
	}
	return nil
}

// Lose reports missing keys instead of generating them again, because running nodes still use them: the key that
// encrypts data in etcd, and the key that signs all service account tokens. If the latter is missing, everything else
// that is missing counts as lost with it.
func (r *Secrets) Lose(id, namespace string, requests []pki.Request) {
	if r.NeedsKey(KeyEncryption) {
		r.malformed[KeyEncryption] = true
		r.KeysErr = errors.Join(r.KeysErr, lost(id, namespace, KeyEncryption))
	}
	if _, found := r.Pairs[pki.ServiceAccount]; found || r.malformed[pki.ServiceAccount] {
		return
	}
	r.PairsErr = errors.Join(r.PairsErr, lost(id, namespace, pki.ServiceAccount))
	for _, request := range requests {
		if _, found := r.Pairs[request.Name]; !found {
			r.malformed[request.Name] = true
		}
	}
}

func lost(id, namespace, name string) error {
	return problem.Newf("KeyMissing", "Secret %s/%s was deleted while nodes use its key; restore it: "+
		"the boot data of masters has a copy, in their Secrets in namespace %s", namespace, key.SecretName(id, name), key.Namespace(id))
}

var tokenFormat = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

func (r *Secrets) key(name string, secret *corev1.Secret, adopted bool) {
	if _, seen := r.Keys[name]; seen || r.malformed[name] {
		return
	}
	value := strings.TrimSpace(string(secret.Data[name]))
	if !validKey(name, value) {
		r.malformed[name] = true
		r.KeysErr = errors.Join(r.KeysErr, problem.Newf("SecretMalformed", "Secret %s/%s: key %q does not hold a valid %s; restore the right one",
			secret.Namespace, secret.Name, name, name))
		return
	}
	r.Keys[name], r.Adopted[name] = value, adopted
}

func validKey(name, value string) bool {
	if name == KeyBootstrapToken {
		return tokenFormat.MatchString(value)
	}
	raw, err := base64.StdEncoding.DecodeString(value)
	return err == nil && len(raw) == 32
}

// Requests returns the requests that may be issued, without those whose Secret is malformed. Pairs of another party are
// kept as they are.
func (r *Secrets) Requests(requests []pki.Request) []pki.Request {
	requests = slices.DeleteFunc(slices.Clone(requests), func(request pki.Request) bool { return r.malformed[request.Name] })
	for i := range requests {
		requests[i].Keep = requests[i].Keep || r.Adopted[requests[i].Name]
	}
	return requests
}

// NeedsKey returns whether a random key has to be generated.
func (r *Secrets) NeedsKey(name string) bool {
	_, found := r.Keys[name]
	return !found && !r.malformed[name]
}

// MissingKeys returns the names of the random keys that have to be generated.
func (r *Secrets) MissingKeys() []string {
	return slices.DeleteFunc(slices.Clone(RandomKeys), func(name string) bool { return !r.NeedsKey(name) })
}
