// Package joining decides about nodes that join a workload cluster: which bootstrap tokens exist, which certificate
// signing requests are approved, which labels a Node gets and whether it is Ready.
//
// Everything here is pure: no client, no clock, no randomness.
package joining

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Period is how long boot data has the same bootstrap token. Periods start at 0 and 12 o'clock UTC.
const Period = 12 * time.Hour

// reserve is for how long a token that is no longer wanted would be accepted if the operator did not remove it: a
// workload cluster whose clock is ahead by less does not remove a token that the operator would create again at once.
const reserve = Period

// BootstrapGroup is the group of clients that authenticate with one of the operator's bootstrap tokens.
const BootstrapGroup = "system:bootstrappers:kvm-operator"

// Lengths and alphabet of bootstrap tokens, by Kubernetes' contract.
const (
	idLength     = 6
	secretLength = 16
	alphabet     = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// Token is a bootstrap token.
type Token struct {
	// ID is public: it is part of the user name and of the name of the Secret.
	ID string
	// Secret proves that its holder was given the token.
	Secret string
	// Node is the node whose identity the token gives.
	Node Node
	// Expires is when the workload cluster stops accepting the token, unless the operator has removed it before.
	Expires time.Time
}

// String returns the token in the form of boot data.
func (t Token) String() string { return t.ID + "." + t.Secret }

// Node is a node of a cluster. It does not have the name of a pod, because a node stays the same when its pod is
// replaced.
type Node struct {
	// Role is master or worker, and ID the node's ID in the KVMConfig.
	Role, ID string
}

// Tokens computes the bootstrap tokens of a cluster's nodes at one time: each node has its own token, which gives only
// that node's identity. The zero value has none.
type Tokens struct {
	seed  string
	start time.Time
}

// TokensAt returns the tokens at the given time. They are computed from the cluster's stored seed, so that nothing has
// to be stored to renew them.
func TokensAt(seed string, now time.Time) Tokens {
	return Tokens{seed: seed, start: now.UTC().Truncate(Period)}
}

// Known returns whether there are tokens.
func (t Tokens) Known() bool { return t.seed != "" }

// Next returns when the tokens change.
func (t Tokens) Next() time.Time { return t.start.Add(Period) }

// Current returns the token in the current boot data of a node.
func (t Tokens) Current(n Node) Token { return tokenOf(t.seed, t.start, n) }

// mountDelay is how long a pod may still get boot data with the token of the previous period: the caches of the host's
// kubelet and of the operator are at most two minutes behind.
const mountDelay = 10 * time.Minute

// Accepted returns the tokens with which the machine of a node may join whose pod exists since the given time: the
// current one first and, if the pod may have started with it, that of the previous period. Therefore a machine has at
// least 12 hours to join after it has booted.
func (t Tokens) Accepted(n Node, since time.Time) []Token {
	accepted := []Token{t.Current(n)}
	if since.Before(t.start.Add(mountDelay)) {
		accepted = append(accepted, tokenOf(t.seed, t.start.Add(-Period), n))
	}
	return accepted
}

// tokenOf derives the token of a node for the period that starts at start: HMAC-SHA256 of the period's number and the
// node with the seed as the key, written with the digits of the alphabet. 256 bits make 22 digits of base 36 with a
// bias of 2^-142.
func tokenOf(seed string, start time.Time, n Node) Token {
	mac := hmac.New(sha256.New, []byte(seed))
	// A hash accepts any input and never returns an error. Neither a role nor an ID contains a slash.
	_ = binary.Write(mac, binary.BigEndian, start.Unix()/int64(Period/time.Second))
	_, _ = mac.Write([]byte(n.Role + "/" + n.ID))
	digits := make([]byte, idLength+secretLength)
	number, base, digit := new(big.Int).SetBytes(mac.Sum(nil)), big.NewInt(int64(len(alphabet))), new(big.Int)
	for i := range digits {
		number.DivMod(number, base, digit)
		digits[i] = alphabet[digit.Int64()]
	}
	return Token{ID: string(digits[:idLength]), Secret: string(digits[idLength:]), Node: n, Expires: start.Add(2*Period + reserve)}
}

// Unique removes tokens whose ID an earlier one has, because a workload cluster has one token for each ID. IDs have 31
// bits, so with 500 nodes that join together two current ones are equal once in 17,000 times; that node joins with the
// token of the next period.
func Unique(tokens []Token) []Token {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(tokens), func(t Token) bool {
		before := seen[t.ID]
		seen[t.ID] = true
		return before
	})
}

// SecretName returns the name of the Secret of the token with the given ID in namespace kube-system. Kubernetes looks
// tokens up by it.
func SecretName(id string) string { return "bootstrap-token-" + id }

// Secret returns the object by which a workload cluster knows the token. Once it has expired the token cleaner of
// kube-controller-manager deletes it, if the operator is not running.
func Secret(token Token) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: SecretName(token.ID), Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{key.LabelManagedBy: key.Operator},
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id":                       []byte(token.ID),
			"token-secret":                   []byte(token.Secret),
			"expiration":                     []byte(token.Expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte(BootstrapGroup),
			"description": []byte("Lets " + token.Node.Role + " " + token.Node.ID + " of kvm-operator ask for its first certificate. " +
				"Renewed every 12 hours, removed once the node is Ready."),
		},
	}
}
