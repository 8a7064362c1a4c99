package joining_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const seed = "abcdef.0123456789abcdef"

// noon is the start of a period.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// m0, w0 and w1 are nodes.
var (
	m0 = joining.Node{Role: "master", ID: "m0aaa"}
	w0 = joining.Node{Role: "worker", ID: "w0aaa"}
	w1 = joining.Node{Role: "worker", ID: "w1aaa"}
)

// TestTokensAreKnown: another operator, or the same one after a restart or an update, computes the same tokens.
func TestTokensAreKnown(t *testing.T) {
	want := []joining.Token{
		{ID: "aq7nkb", Secret: "fmlaonwugd0066xu", Node: w0, Expires: noon.Add(3 * joining.Period)},
		{ID: "8mw0oj", Secret: "076k26ww2m99gde9", Node: w0, Expires: noon.Add(2 * joining.Period)},
	}
	for name, now := range map[string]time.Time{
		"at the first moment of the period": noon,
		"at the last one":                   noon.Add(joining.Period - 1),
		"in another time zone":              noon.In(time.FixedZone("", 5*3600+1800)),
	} {
		t.Run(name, func(t *testing.T) {
			tokens := joining.TokensAt(seed, now)
			if diff := cmp.Diff(want, tokens.Accepted(w0, noon)); diff != "" {
				t.Errorf("other tokens (-want +got):\n%s", diff)
			}
			if tokens.Current(w0) != want[0] || !tokens.Next().Equal(noon.Add(joining.Period)) || !tokens.Known() {
				t.Errorf("the current token is %+v, until %s", tokens.Current(w0), tokens.Next())
			}
		})
	}
	if (joining.Tokens{}).Known() {
		t.Error("there are tokens without a seed")
	}
}

// TestEachNodeHasTokensOfItsOwn: no other node, no node of another role with the same ID, and no other cluster has the
// same token.
func TestEachNodeHasTokensOfItsOwn(t *testing.T) {
	nodes := []joining.Node{m0, w0, w1, {Role: "master", ID: "w0aaa"}, {Role: "worker", ID: "m0aaa"}, {Role: "worker", ID: ""}}
	seen := map[string]bool{}
	for _, cluster := range []string{seed, "abcdef.0123456789abcdeg"} {
		for _, n := range nodes {
			for _, token := range joining.TokensAt(cluster, noon).Accepted(n, noon) {
				if seen[token.ID] || seen[token.Secret] || token.Node != n {
					t.Errorf("the token %+v of %+v is not its own", token, n)
				}
				seen[token.ID], seen[token.Secret] = true, true
			}
		}
	}
}

// TestAPodMayJoinWithItsBootData: the token that was current when a pod started is accepted for at least 12 hours and
// does not expire before; a token that no boot data of the pod ever had is not accepted.
func TestAPodMayJoinWithItsBootData(t *testing.T) {
	for minutes := 0; minutes <= 3*24*60; minutes += 7 {
		made := noon.Add(time.Duration(minutes) * time.Minute)
		began := joining.TokensAt(seed, made).Current(w0)
		for later := time.Duration(0); later <= joining.Period; later += 11 * time.Minute {
			now := made.Add(later)
			tokens := joining.TokensAt(seed, now)
			accepted := tokens.Accepted(w0, made)
			if !slices.Contains(accepted, began) || began.Expires.Sub(now) <= joining.Period {
				t.Fatalf("a pod of %s does not join at %s with %+v, but with %+v", made, now, began, accepted)
			}
			// The token cleaner of a workload cluster whose clock is ahead does not remove a token that the operator
			// would create again at once.
			for _, token := range accepted {
				if left := token.Expires.Sub(tokens.Next()); left < joining.Period {
					t.Fatalf("%s: a token that is wanted until %s is removed %s after that", now, tokens.Next(), left)
				}
			}
			if made.Sub(tokens.Next()) > 10*time.Minute-joining.Period && len(accepted) != 1 {
				t.Fatalf("%s: a pod of %s may join by %d tokens", now, made, len(accepted))
			}
		}
	}
}

// TestTokensOfOneIDAreOne: of several tokens with the same ID the first is kept, because a workload cluster finds a
// token by its ID.
func TestTokensOfOneIDAreOne(t *testing.T) {
	token := func(id, secret string) joining.Token { return joining.Token{ID: id, Secret: secret} }
	got := joining.Unique([]joining.Token{token("a", "1"), token("b", "2"), token("a", "3")})
	if diff := cmp.Diff([]joining.Token{token("a", "1"), token("b", "2")}, got); diff != "" {
		t.Errorf("other tokens (-want +got):\n%s", diff)
	}
}

// TestTokensLookRandom: every digit is equally frequent, and no token occurs twice.
func TestTokensLookRandom(t *testing.T) {
	format := regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	digits, seen := map[rune]int{}, map[string]bool{}
	const periods = 1800
	for i := range periods {
		for _, n := range []joining.Node{w0, m0} {
			token := joining.TokensAt(seed, noon.Add(time.Duration(i)*joining.Period)).Current(n).String()
			if !format.MatchString(token) || seen[token] {
				t.Fatalf("token %q", token)
			}
			seen[token] = true
			for _, digit := range token {
				digits[digit]++
			}
		}
	}
	delete(digits, '.')
	// 2200 of each are expected; five standard deviations are 231.
	for digit, count := range digits {
		if count < 1969 || count > 2431 {
			t.Errorf("digit %c comes up %d times", digit, count)
		}
	}
	if len(digits) != 36 {
		t.Errorf("%d digits come up", len(digits))
	}
}

// TestSecretOfAToken: the Secret is as kube-apiserver and the token cleaner expect it.
func TestSecretOfAToken(t *testing.T) {
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "bootstrap-token-abcdef", Namespace: "kube-system", Labels: map[string]string{key.LabelManagedBy: key.Operator},
		},
		Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "expiration": []byte("2026-11-21T12:00:00Z"),
			"usage-bootstrap-authentication": []byte("true"), "auth-extra-groups": []byte("system:bootstrappers:kvm-operator"),
			"description": []byte("Lets worker w0aaa of kvm-operator ask for its first certificate. Renewed every 12 hours, removed once the node is Ready."),
		},
	}
	token := joining.Token{ID: "abcdef", Secret: "0123456789abcdef", Node: w0, Expires: noon.In(time.FixedZone("", 3600))}
	if diff := cmp.Diff(want, joining.Secret(token)); diff != "" {
		t.Errorf("another Secret (-want +got):\n%s", diff)
	}
}
