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

	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// Issuer makes key pairs.
type Issuer interface {
	Issue(request Request, authority KeyPair) (KeyPair, error)
}

// Completed is what was made of the pairs that existed.
type Completed struct {
	// Set holds a pair for every request that could be answered.
	Set Set
	// Renewed tells, by name, why a pair that existed is another one now: issued anew, or with others to believe.
	Renewed map[string]string
	// Next is when the next of the pairs has to be issued anew; zero when none ever has.
	Next time.Time
	// Failed is why pairs that have to be issued anew could not be, or are not valid yet. They stay as they are.
	Failed error
}

// errAuthoritysName keeps an authority from being replaced by a certificate.
var errAuthoritysName = errors.New("an authority has this name; a node's id has to be another one")

// proper leaves out requests of certificates that would take an authority's place, and tells of them.
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

// Complete keeps the existing pairs, issues a new one for each request that none of them answers, and issues those anew whose time
// has come. Authorities that exist are never replaced. While there is doubt about the time, which is nil otherwise, none is issued anew because
// of it: a clock that is ahead for a moment would replace the pairs of all clusters by ones that are not valid yet. A request that cannot be answered is left out of the Set and told of in the
// error; the others go on.
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
			continue // why there is no authority is told with the authority's name
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

// doubtOf is the doubt about the time, where that is why a pair is issued anew.
func doubtOf(why string, doubt error) error {
	if why == whyTerm {
		return doubt
	}
	return nil
}

// issue has a pair be issued that holds from now on at the latest, unless there is a doubt.
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

// unborn tells of pairs that nobody believes yet.
func unborn(set Set, requests []Request, now time.Time) error {
	var told failures
	for _, request := range requests {
		if pair, exists := set[request.Name]; exists && !request.Keep && early(pair, now) {
			told.add(request.Name, errNotValidYet)
		}
	}
	return told.join("is not valid yet")
}

// early says that nobody believes a pair yet. What cannot be read is told of elsewhere.
func early(pair KeyPair, now time.Time) bool {
	cert, err := ParseCertificate(pair.Certificate)
	return err == nil && now.Before(cert.NotBefore)
}

var (
	// errIssuerAhead keeps a pair that nobody believes from taking the place of one that works.
	errIssuerAhead = problem.Newf("IssuerAhead", "the issuer's clock is an hour or more ahead of the management cluster's, so that the certificate would not be valid yet")
	// errNotValidYet leaves to a person whether the clock is wrong now, or was: to issue all anew replaces the masters of every cluster.
	errNotValidYet = problem.Newf("NotValidYet", "the management cluster's clock is behind, or was ahead when it was issued; set it, or delete the Secret for a new one")
)

// keep has a pair stay, with those to believe that its authority says.
func (c *Completed) keep(request Request, pair, authority KeyPair) {
	if outdatedTrust(request, pair, authority) {
		pair.CA = Trusted(authority)
		c.Renewed[request.Name] = "others are believed now"
	}
	c.Set[request.Name] = pair
	c.Next = sooner(c.Next, renewal(request, pair, authority))
}

// replace puts a pair in its place; why is empty where there was none.
func (c *Completed) replace(request Request, fresh, authority KeyPair, why string) {
	if why != "" {
		c.Renewed[request.Name] = why
	}
	c.Set[request.Name] = fresh
	c.Next = sooner(c.Next, renewal(request, fresh, authority))
}

// failures are errors with the names of the pairs for which they came.
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

// join makes one error of all: each says once what is wrong, and with which pairs. What only a person can mend stays so.
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

// sooner is the earlier of two times; a zero one is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Trust returns the set with, as the CA of each authority, every certificate that signed one of its pairs: a pair that
// was adopted from somewhere else brings its own authority along, and its holder has to be believed too. Of a pair that is kept for
// its key nobody asks who signed it.
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

// missing are the certificates of one PEM text that another lacks.
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
