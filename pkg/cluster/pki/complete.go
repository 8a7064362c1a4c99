package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Issuer issues key pairs.
type Issuer interface {
	Issue(request Request, authority KeyPair) (KeyPair, error)
}

// Completed is the result of Complete.
type Completed struct {
	// Set holds a pair for every request that could be fulfilled.
	Set Set
	// Renewed maps the name of each existing pair that changed to the reason: it was reissued, or its trust bundle
	// changed.
	Renewed map[string]string
	// Next is when the next pair has to be renewed. It is zero if none ever has to be.
	Next time.Time
	// Failed says why pairs that are due could not be renewed, or are not valid yet. They stay in use as they are.
	Failed error
}

// errAuthoritysName prevents a certificate from replacing a CA of the same name.
var errAuthoritysName = errors.New("an authority has this name; a node's id has to be another one")

// proper drops requests for certificates that would replace a CA, and reports them.
func proper(requests []Request) (left []Request, told failures) {
	for _, request := range requests {
		if request.Usage != UsageAuthority && slices.Contains(Authorities, request.Name) {
			told.add(request.Name, errAuthoritysName)
			continue
		}
		left = append(left, request)
	}
	return left, told
}

// Complete keeps the existing pairs, issues a new pair for each request that has none, and renews those that are due.
// It never replaces an existing CA. doubt is nil unless the current time is in doubt. While it is, no pair is renewed
// because of its age: a clock that is ahead for a moment would otherwise replace the pairs of all clusters by pairs
// that are not valid yet. A request that cannot be fulfilled is left out of the Set and named in the error; the other
// requests are still fulfilled.
func Complete(existing Set, requests []Request, issuer Issuer, now time.Time, doubt error) (Completed, error) {
	complete := Completed{Set: Set{}, Renewed: map[string]string{}}
	requests, absent := proper(requests)
	var failed failures
	for _, request := range requests {
		authority, signs := complete.Set[request.Authority]
		pair, exists := existing[request.Name]
		if exists {
			complete.Set[request.Name] = pair
		}
		if !signs && request.Usage != UsageAuthority {
			continue // the error for the CA itself says why it is missing
		}
		why := ""
		if exists {
			if why = due(request, pair, authority, now); why == "" {
				complete.keep(request, pair, authority)
				continue
			}
		}
		fresh, err := issue(issuer, request, authority, now, doubtOf(why, doubt))
		switch {
		case err == nil:
			complete.replace(request, fresh, authority, why)
		case exists:
			failed.add(request.Name, err)
		default:
			absent.add(request.Name, err)
		}
	}
	complete.Failed = errors.Join(failed.join("cannot be renewed and stays in use"), unborn(complete.Set, requests, now))
	return complete, absent.join("cannot be issued")
}

// doubtOf returns the doubt about the time if the pair is renewed because of its age, and nil otherwise.
func doubtOf(why string, doubt error) error {
	if why == whyTerm {
		return doubt
	}
	return nil
}

// issue issues a pair. It fails if there is a doubt about the time, or if the pair is not valid yet.
func issue(issuer Issuer, request Request, authority KeyPair, now time.Time, doubt error) (KeyPair, error) {
	if doubt != nil {
		return KeyPair{}, doubt
	}
	fresh, err := issuer.Issue(request, authority)
	if err == nil && early(fresh, now) {
		err = errIssuerAhead
	}
	return fresh, err
}

// unborn reports pairs that are not valid yet.
func unborn(set Set, requests []Request, now time.Time) error {
	var told failures
	for _, request := range requests {
		if pair, exists := set[request.Name]; exists && !request.Keep && early(pair, now) {
			told.add(request.Name, errNotValidYet)
		}
	}
	return told.join("is not valid yet")
}

// early reports whether a pair is not valid yet. Pairs that cannot be parsed are reported elsewhere.
func early(pair KeyPair, now time.Time) bool {
	cert, err := ParseCertificate(pair.Certificate)
	return err == nil && now.Before(cert.NotBefore)
}

var (
	// errIssuerAhead prevents a pair that is not valid yet from replacing one that works.
	errIssuerAhead = problem.Newf("IssuerAhead", "the issuer's clock is an hour or more ahead of the management cluster's, so that the certificate would not be valid yet")
	// errNotValidYet leaves it to a person to decide whether the clock is wrong now or was wrong earlier, because
	// reissuing all pairs would replace the masters of every cluster.
	errNotValidYet = problem.Newf("NotValidYet", "the management cluster's clock is behind, or was ahead when it was issued; set it, or delete the Secret for a new one")
)

// keep keeps an existing pair and updates its trust bundle to that of its CA.
func (c *Completed) keep(request Request, pair, authority KeyPair) {
	if outdatedTrust(request, pair, authority) {
		pair.CA = Trusted(authority)
		c.Renewed[request.Name] = "others are believed now"
	}
	c.Set[request.Name] = pair
	c.Next = sooner(c.Next, renewal(request, pair, authority))
}

// replace stores a new pair. why is empty if there was no pair before.
func (c *Completed) replace(request Request, fresh, authority KeyPair, why string) {
	if why != "" {
		c.Renewed[request.Name] = why
	}
	c.Set[request.Name] = fresh
	c.Next = sooner(c.Next, renewal(request, fresh, authority))
}

// failures are errors, each with the names of the pairs that it concerns.
type failures []failure

type failure struct {
	names []string
	err   error
}

func (f *failures) add(name string, err error) {
	for i, other := range *f {
		if other.err.Error() == err.Error() {
			(*f)[i].names = append(other.names, name)
			return
		}
	}
	*f = append(*f, failure{names: []string{name}, err: err})
}

// join combines all failures into one error that states each cause once, with the pairs that it concerns. A problem
// that only a person can fix remains a problem.
func (f failures) join(what string) error {
	var all []error
	for _, one := range f {
		text := fmt.Sprintf("%s %s: %s", strings.Join(one.names, ", "), what, one.err)
		if p, ok := problem.As(one.err); ok {
			all = append(all, &problem.Problem{Reason: p.Reason, Message: text})
		} else {
			all = append(all, fmt.Errorf("%s %s: %w", strings.Join(one.names, ", "), what, one.err))
		}
	}
	return errors.Join(all...)
}

// sooner returns the earlier of two times. A zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Trust returns the set with every CA that signed one of its pairs added to the CA field of that pair's authority: an
// adopted pair brings its own CA, and its peers have to trust that CA too. Pairs that are only kept for their key
// (Keep) are skipped, because their signer does not matter.
func Trust(set Set, requests []Request) Set {
	trusting := Set{}
	for name, pair := range set {
		trusting[name] = pair
	}
	for _, request := range requests {
		pair, ok := set[request.Name]
		authority, known := trusting[request.Authority]
		if request.Keep || !ok || !known || bytes.Contains(authority.CA, bytes.TrimSpace(pair.CA)) || signedByOneOf(pair.Certificate, authority.CA) {
			continue
		}
		authority.CA = append(append(bytes.Clone(authority.CA), '\n'), missing(pair.CA, authority.CA)...)
		trusting[request.Authority] = authority
	}
	return trusting
}

// missing returns the certificates of one PEM text that another lacks.
func missing(text, in []byte) []byte {
	there := parseAll(in)
	lacking := slices.DeleteFunc(parseAll(text), func(cert *x509.Certificate) bool { return slices.ContainsFunc(there, cert.Equal) })
	if len(lacking) == len(parseAll(text)) {
		return text
	}
	var encoded []byte
	for _, cert := range lacking {
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return encoded
}
