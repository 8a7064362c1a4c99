package joining_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

const seed = "abcdef.0123456789abcdef"

// noon is when a period begins.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestTokensAreKnown: another operator, or the same one after a restart or an update, gives the same tokens.
func TestTokensAreKnown(t *testing.T) {
	want := joining.Tokens{
		Current: "u9lsaf.ke87byr2e5pbtzvj",
		Valid: []joining.Token{
			{ID: "bn37zf", Secret: "i32pho1jdjpklmyl", Expires: noon.Add(2 * joining.Period)},
			{ID: "u9lsaf", Secret: "ke87byr2e5pbtzvj", Expires: noon.Add(3 * joining.Period)},
			{ID: "jadyto", Secret: "scu9yvn4ludopxp9", Expires: noon.Add(4 * joining.Period)},
		},
		Next: noon.Add(joining.Period),
	}
	for name, now := range map[string]time.Time{
		"at the first moment of the period": noon,
		"at the last one":                   noon.Add(joining.Period - 1),
		"in another time zone":              noon.In(time.FixedZone("", 5*3600+1800)),
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, joining.TokensAt(seed, now)); diff != "" {
				t.Errorf("other tokens (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBootDataAlwaysHoldsAValidToken: what is current at one time is accepted for the 12 hours after it, by a workload
// cluster that was told of it a period before and by one that has not been told anything for a period.
func TestBootDataAlwaysHoldsAValidToken(t *testing.T) {
	for minutes := 0; minutes <= 3*24*60; minutes += 7 {
		now := noon.Add(time.Duration(minutes) * time.Minute)
		tokens := joining.TokensAt(seed, now)
		for _, told := range []time.Duration{-joining.Period, 0, joining.Period} {
			valid := joining.TokensAt(seed, now.Add(told)).Valid
			i := slices.IndexFunc(valid, func(token joining.Token) bool { return token.String() == tokens.Current })
			if i < 0 {
				t.Fatalf("%s: the current token is not among those of %s", now, now.Add(told))
			}
			if left := valid[i].Expires.Sub(now); left <= 2*joining.Period || left > 3*joining.Period {
				t.Fatalf("%s: the current token expires in %s", now, left)
			}
		}
		if tokens.Next.Sub(now) <= 0 || tokens.Next.Sub(now) > joining.Period {
			t.Fatalf("%s: the answer changes at %s", now, tokens.Next)
		}
		// The token cleaner of a workload cluster whose clock is ahead does not remove what the operator would make again at once.
		if first := tokens.Valid[0].Expires.Sub(tokens.Next); first < joining.Period {
			t.Fatalf("%s: a token that is wanted until %s is removed %s after that", now, tokens.Next, first)
		}
		if next := joining.TokensAt(seed, tokens.Next); next.Current != tokens.Valid[2].String() {
			t.Fatalf("%s: the answer changes to %s, which was not there before", now, next.Current)
		}
	}
}

// TestTokensLookRandom: every digit comes up as often as the others, and no token comes twice.
func TestTokensLookRandom(t *testing.T) {
	format := regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	digits, seen := map[rune]int{}, map[string]bool{}
	const tokens = 3600
	for i := range tokens {
		token := joining.TokensAt(seed, noon.Add(time.Duration(i)*joining.Period)).Current
		if !format.MatchString(token) || seen[token] {
			t.Fatalf("token %q", token)
		}
		seen[token] = true
		for _, digit := range token {
			digits[digit]++
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
	if other := joining.TokensAt("abcdef.0123456789abcdeg", noon).Current; seen[other] {
		t.Errorf("another seed leads to the same token %s", other)
	}
}

// TestSecretOfAToken is as kube-apiserver and token cleaner read it.
func TestSecretOfAToken(t *testing.T) {
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "bootstrap-token-abcdef", Namespace: "kube-system", Labels: map[string]string{key.LabelManagedBy: key.Operator},
		},
		Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "expiration": []byte("2026-11-21T12:00:00Z"),
			"usage-bootstrap-authentication": []byte("true"), "auth-extra-groups": []byte("system:bootstrappers:kvm-operator"),
			"description": []byte("Lets node pods of kvm-operator ask for their first certificate. Renewed every 12 hours."),
		},
	}
	token := joining.Token{ID: "abcdef", Secret: "0123456789abcdef", Expires: noon.In(time.FixedZone("", 3600))}
	if diff := cmp.Diff(want, joining.Secret(token)); diff != "" {
		t.Errorf("another Secret (-want +got):\n%s", diff)
	}
}
