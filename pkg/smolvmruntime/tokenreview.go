package smolvmruntime

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// reviewCounts is for how long the answer to a review counts.
	reviewCounts = time.Minute
	// reviewTime bounds a review.
	reviewTime = 10 * time.Second
	// maxReviews is how many answers are remembered.
	maxReviews = 1024
	// untrustedPerSecond bounds reviews of tokens that have not been accepted before, so that clients without a right do
	// not keep the API server busy. sourcePerSecond bounds those from one address, so that one client does not use up all.
	untrustedPerSecond, untrustedAtOnce = 5, 20
	sourcePerSecond, sourceAtOnce       = 1, 5
	// maxSources is how many addresses are remembered, and trustLasts for how long one counts as the controller's after a
	// token that came from it was accepted.
	maxSources = 1024
	trustLasts = 24 * time.Hour
	// clockSkew is how far the clock of the node may be ahead of the API server's.
	clockSkew = 5 * time.Minute
)

// reviewer accepts tokens of the controller's ServiceAccount that are for the audience, as the API server says.
type reviewer struct {
	client         client.Client
	user, audience string
	now            func() time.Time
	untrusted      *rate.Limiter

	mu      sync.Mutex
	known   map[[sha256.Size]byte]review
	sources map[string]*source
}

// review is an answer of the API server.
type review struct {
	accepted bool
	until    time.Time
}

// source is an address that tokens come from.
type source struct {
	limiter *rate.Limiter
	// used is when a token last came from it, and trusted when one was last accepted.
	used, trusted time.Time
}

func newReviewer(c client.Client, user, audience string, now func() time.Time) *reviewer {
	return &reviewer{
		client: c, user: user, audience: audience, now: now, known: map[[sha256.Size]byte]review{}, sources: map[string]*source{},
		untrusted: rate.NewLimiter(untrustedPerSecond, untrustedAtOnce),
	}
}

// Authenticate implements authenticator.
func (r *reviewer) Authenticate(ctx context.Context, token string) (bool, error) {
	if !r.mayBeRight(token) {
		return false, nil
	}
	digest := sha256.Sum256([]byte(token))
	answer, found := r.recall(digest)
	if found && r.now().Before(answer.until) {
		return answer.accepted, nil
	}
	// A token that was accepted before is reviewed however many others there are.
	from := clientOfContext(ctx)
	if !answer.accepted && !r.mayAsk(from) {
		return false, fmt.Errorf("%w: too many unknown tokens have come", errUndecided)
	}
	accepted, err := r.ask(ctx, token)
	if err != nil {
		return false, fmt.Errorf("%w: asking the API server: %w", errUndecided, err)
	}
	r.remember(digest, accepted)
	if accepted {
		r.trust(from)
	}
	return accepted, nil
}

// mayAsk reports whether an unknown token of an address may be reviewed. An address that a right token came from before has
// its own reserve, since its client gets new tokens from time to time: others cannot use that up.
func (r *reviewer) mayAsk(from string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s := r.sourceAt(from, now)
	if !s.limiter.AllowN(now, 1) {
		return false
	}
	return now.Sub(s.trusted) < trustLasts || r.untrusted.AllowN(now, 1)
}

func (r *reviewer) trust(from string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sourceAt(from, now).trusted = now
}

// sourceAt finds or makes the source of an address, and makes room for it. It holds r.mu.
func (r *reviewer) sourceAt(from string, now time.Time) *source {
	s, found := r.sources[from]
	if !found {
		if len(r.sources) >= maxSources {
			r.forgetSource(now)
		}
		s = &source{limiter: rate.NewLimiter(sourcePerSecond, sourceAtOnce)}
		r.sources[from] = s
	}
	s.used = now
	return s
}

// forgetSource forgets the address that was quiet for longest; one of the controller's only if there are no others.
func (r *reviewer) forgetSource(now time.Time) {
	oldest, found := "", false
	worse := func(a, b *source) bool {
		trustedA, trustedB := now.Sub(a.trusted) < trustLasts, now.Sub(b.trusted) < trustLasts
		if trustedA != trustedB {
			return trustedB
		}
		return a.used.Before(b.used)
	}
	for address, s := range r.sources {
		if !found || worse(s, r.sources[oldest]) {
			oldest, found = address, true
		}
	}
	delete(r.sources, oldest)
}

// mayBeRight reads what a token says of itself, unproved. It spares the API server tokens that cannot be right.
func (r *reviewer) mayBeRight(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Subject  string   `json:"sub"`
		Audience audience `json:"aud"`
		// Expiry is in seconds since 1970. RFC 7519 allows fractions.
		Expiry float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Subject != r.user || !slices.Contains(claims.Audience, r.audience) {
		return false
	}
	return claims.Expiry > float64(r.now().Add(-clockSkew).Unix())
}

// audience is the recipient of a token: one name, or several (RFC 7519, section 4.1.3).
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

func (r *reviewer) recall(digest [sha256.Size]byte) (review, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer, found := r.known[digest]
	return answer, found
}

func (r *reviewer) remember(digest [sha256.Size]byte, accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.known[digest]; !found && len(r.known) >= maxReviews {
		r.makeRoom()
	}
	r.known[digest] = review{accepted, r.now().Add(reviewCounts)}
}

// makeRoom forgets what was refused, or else everything.
func (r *reviewer) makeRoom() {
	for digest, answer := range r.known {
		if !answer.accepted {
			delete(r.known, digest)
		}
	}
	if len(r.known) >= maxReviews {
		clear(r.known)
	}
}

func (r *reviewer) ask(ctx context.Context, token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	asked := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{r.audience}}}
	if err := r.client.Create(ctx, asked); err != nil {
		return false, err
	}
	// An API server that knows no audiences answers without one.
	return asked.Status.Authenticated && asked.Status.User.Username == r.user && slices.Contains(asked.Status.Audiences, r.audience), nil
}
