package smolvmruntime

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenOf returns a token of a ServiceAccount for an audience, which is made if it is missing.
func tokenOf(t *testing.T, c client.Client, name, audience string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := c.Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	asked := &authenticationv1.TokenRequest{}
	if audience != "" {
		asked.Spec.Audiences = []string{audience}
	}
	if err := c.SubResource("token").Create(t.Context(), account, asked); err != nil {
		t.Fatal(err)
	}
	return asked.Status.Token
}

func digestOf(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// forged returns a token with claims of the controller that no one signed.
func forged(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+controllerUser+`",`+claims+`}`)) + ".AAAA"
}

const controllerUser = "system:serviceaccount:default:smolvm-controller"

func TestTokensOfServiceAccounts(t *testing.T) {
	admin := direct(t)
	right := tokenOf(t, admin, "smolvm-controller", DefaultAudience)
	for sentence, test := range map[string]struct {
		token         string
		want, reviews bool
	}{
		"the controller's, for the audience":   {right, true, true},
		"the controller's, for others":         {tokenOf(t, admin, "smolvm-controller", "other"), false, false},
		"the controller's, for the server":     {tokenOf(t, admin, "smolvm-controller", ""), false, false},
		"another account's":                    {tokenOf(t, admin, "stranger", DefaultAudience), false, false},
		"one with another signature":           {right[:len(right)-8] + "AAAAAAAA", false, true},
		"one that says it is the controller's": {forged(`"aud":["x","smolvm-runtime"],"exp":9999999999.5`), false, true},
		"one for one audience":                 {forged(`"aud":"smolvm-runtime","exp":9999999999`), false, true},
		"one without an audience":              {forged(`"exp":9999999999`), false, false},
		"one whose audience is a number":       {forged(`"aud":5,"exp":9999999999`), false, false},
		"one that never ends":                  {forged(`"aud":"smolvm-runtime"`), false, false},
		"one that has ended":                   {forged(`"aud":"smolvm-runtime","exp":1500000000`), false, false},
		"one that ends at no time":             {forged(`"aud":"smolvm-runtime","exp":"never"`), false, false},
		"no token":                             {"", false, false},
		"no JWT":                               {"abc", false, false},
		"no payload":                           {"a.%.c", false, false},
		"no JSON":                              {"a.YQ.c", false, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			c, sent := counted(t)
			r := newReviewer(c, controllerUser, DefaultAudience, time.Now)
			for range 3 {
				if got, err := r.Authenticate(t.Context(), test.token); err != nil || got != test.want {
					t.Errorf("accepted %v: %v", got, err)
				}
			}
			want := 0
			if test.reviews {
				want = 1
			}
			if reviews := sent.take(); len(reviews) != want {
				t.Errorf("three requests made %d reviews", len(reviews))
			}
		})
	}
}

// TestReviewsCountForAMinute: an account that is deleted has no right after that.
func TestReviewsCountForAMinute(t *testing.T) {
	c, sent := counted(t)
	token := tokenOf(t, direct(t), "short-lived", DefaultAudience)
	at := &clock{at: time.Now()}
	r := newReviewer(c, "system:serviceaccount:default:short-lived", DefaultAudience, at.now)
	accepts := func() bool {
		t.Helper()
		ok, err := r.Authenticate(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !accepts() {
		t.Fatal("it is not accepted")
	}
	if err := c.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "short-lived"}}); err != nil {
		t.Fatal(err)
	}
	at.pass(reviewCounts - time.Second)
	if !accepts() {
		t.Error("the review counts no longer")
	}
	at.pass(time.Second)
	// The clock stays, so that the token does not end.
	eventually(t, "it is refused", func() bool {
		r.known[digestOf(token)] = review{accepted: true, until: at.now()}
		return !accepts()
	})
	sent.set(context.DeadlineExceeded)
	at.pass(reviewCounts)
	if ok, err := r.Authenticate(t.Context(), token); ok || !errors.Is(err, errUndecided) {
		t.Errorf("without an API server: %v, %v", ok, err)
	}
}

// TestStrangersDoNotKeepTheControllerOut: unknown tokens are reviewed at a bounded rate, known ones always.
func TestStrangersDoNotKeepTheControllerOut(t *testing.T) {
	c, sent := counted(t)
	at := &clock{at: time.Now()}
	r := newReviewer(c, controllerUser, DefaultAudience, at.now)
	right := tokenOf(t, direct(t), "smolvm-controller", DefaultAudience)
	if ok, err := r.Authenticate(t.Context(), right); !ok {
		t.Fatal(err)
	}
	payload := strings.Split(right, ".")[1]
	sent.take()
	refused, count := 0, 0
	flood := func(from string, tokens int) (reviews int) {
		for range tokens {
			count++
			if _, err := r.Authenticate(withClient(t.Context(), from), fmt.Sprintf("e30.%s.x%d", payload, count)); errors.Is(err, errUndecided) {
				refused++
			}
		}
		return len(sent.take())
	}
	if reviews := flood("stranger", 200); reviews != sourceAtOnce || refused != 200-reviews {
		t.Errorf("of one address: %d reviews, %d not reviewed", reviews, refused)
	}
	reviews := 0
	for i := range 20 {
		reviews += flood(fmt.Sprint(i), 10)
	}
	if reviews != untrustedAtOnce-sourceAtOnce-1 { // One was the controller's first token.
		t.Errorf("of many addresses: %d reviews", reviews)
	}
	renewed := tokenOf(t, direct(t), "smolvm-controller", DefaultAudience)
	if _, err := r.Authenticate(withClient(t.Context(), "another"), renewed); !errors.Is(err, errUndecided) {
		t.Errorf("an unknown address has a reserve: %v", err)
	}
	if ok, err := r.Authenticate(t.Context(), renewed); !ok || err != nil {
		t.Errorf("the controller's new token is not reviewed: %v", err)
	}
	r.known[digestOf(right)] = review{accepted: true, until: at.now()} // a minute has passed
	if ok, err := r.Authenticate(t.Context(), right); !ok || err != nil {
		t.Errorf("the controller is kept out: %v", err)
	}
	for i := range 3 * maxReviews {
		r.remember(digestOf(fmt.Sprint(i)), false)
	}
	if answer, ok := r.recall(digestOf(right)); !ok || !answer.accepted || len(r.known) > maxReviews {
		t.Errorf("the controller is forgotten, or %d answers are remembered", len(r.known))
	}
}

// TestSourcesAreForgotten: there is room for new addresses, and the controller's stays.
func TestSourcesAreForgotten(t *testing.T) {
	at := &clock{at: time.Now()}
	r := newReviewer(nil, controllerUser, DefaultAudience, at.now)
	r.trust("controller")
	for i := range 2 * maxSources {
		at.pass(time.Second)
		if !r.mayAsk(fmt.Sprint(i)) {
			t.Fatalf("address %d has no turn", i)
		}
	}
	_, newest := r.sources[fmt.Sprint(2*maxSources-1)]
	if s := r.sources["controller"]; s == nil || s.trusted.IsZero() || !newest || len(r.sources) != maxSources {
		t.Errorf("the controller is %+v, of %d", s, len(r.sources))
	}
	at.pass(trustLasts)
	r.mayAsk("more")
	if _, found := r.sources["controller"]; found {
		t.Error("trust in an address never ends")
	}
}
