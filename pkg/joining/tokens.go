// Package joining holds the decisions about nodes that join a workload cluster: which bootstrap tokens there are, which
// requests for certificates are approved, which labels a Node gets and whether it is Ready.
//
// Everything here is pure: no client, no clock, no randomness.
package joining

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Period is how long boot data carries the same bootstrap token. Periods begin at 0 and 12 o'clock UTC.
const Period = 12 * time.Hour

// reserve is how long a token that the operator wants no more would still be accepted, were it not removed: a workload cluster whose clock is
// ahead by less does not remove one that the operator would make again at once.
const reserve = Period

// BootstrapGroup is the group of those who introduce themselves by one of the operator's bootstrap tokens.
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
	// Expires is when the workload cluster stops to accept the token if the operator has not removed it before.
	Expires time.Time
}

// String is the token as boot data carries it.
func (t Token) String() string { return t.ID + "." + t.Secret }

// TokenID is the public part of a token as boot data carries it.
func TokenID(token string) string {
	id, _, _ := strings.Cut(token, ".")
	return id
}

// Tokens are the bootstrap tokens of a cluster at one time.
type Tokens struct {
	// Current is the token that boot data carries.
	Current string
	// Valid are the tokens that the workload cluster accepts: those of the period before, this one and the next. The next
	// one's is there early, so that boot data holds a valid token although the API server may be unreachable when the
	// period changes.
	Valid []Token
	// Next is when the answer changes.
	Next time.Time
}

// TokensAt returns the tokens at the given time. They follow from the cluster's stored seed, so that they are renewed
// without anything being stored. A token is valid until the end of the period after its own: a guest that boots with
// it has 12 hours at least.
func TokensAt(seed string, now time.Time) Tokens {
	start := now.UTC().Truncate(Period)
	token := tokenOf(seed, start)
	return Tokens{
		Current: token.String(),
		Valid:   []Token{tokenOf(seed, start.Add(-Period)), token, tokenOf(seed, start.Add(Period))},
		Next:    start.Add(Period),
	}
}

// tokenOf derives the token of the period that begins at start: HMAC-SHA256 of the period's number under the seed, written
// with the digits of the alphabet. 256 bits make 22 digits of base 36 with a bias of 2^-142.
func tokenOf(seed string, start time.Time) Token {
	mac := hmac.New(sha256.New, []byte(seed))
	// A hash takes everything and never answers with an error.
	_ = binary.Write(mac, binary.BigEndian, start.Unix()/int64(Period/time.Second))
	digits := make([]byte, idLength+secretLength)
	number, base, digit := new(big.Int).SetBytes(mac.Sum(nil)), big.NewInt(int64(len(alphabet))), new(big.Int)
	for i := range digits {
		number.DivMod(number, base, digit)
		digits[i] = alphabet[digit.Int64()]
	}
	return Token{ID: string(digits[:idLength]), Secret: string(digits[idLength:]), Expires: start.Add(2*Period + reserve)}
}

// SecretName is the name of the Secret of the token with the given id in namespace kube-system. Kubernetes looks tokens up
// by it.
func SecretName(id string) string { return "bootstrap-token-" + id }

// Secret is the object by which a workload cluster knows the token. Once it has expired the token cleaner of
// kube-controller-manager deletes it, should the operator be away.
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
			"description":                    []byte("Lets node pods of kvm-operator ask for their first certificate. Renewed every 12 hours."),
		},
	}
}
