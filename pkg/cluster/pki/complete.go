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

// errNameOfCA prevents a certificate from replacing a CA of the same name.
var errNameOfCA = errors.New("a CA has this name; choose another id for the node")

// proper drops requests for certificates that would replace a CA, and reports them.
func proper(requests []Request) (left []Request, told failures) {
	for _, request := range requests {
		if request.Usage != UsageAuthority && slices.Contains(Authorities, request.Name) {
			told.add(request.Name, errNameOfCA)
			continue
		}
		left = append(left, request)
	}
	return left, told
}

// Missing issues a pair for each request that has none and whose CA exists, and returns the new pairs. What a new CA
// signs is issued by a later call, when the CA is stored: if another CA turns out to be stored, nothing was signed by
// the new one. A request that cannot be fulfilled is named in the error; the others are fulfilled.
func Missing(existing Set, requests []Request, issuer Issuer, now time.Time) (Set, error) {
	requests, absent := proper(requests)
	fresh := Set{}
	for _, request := range requests {
		if _, exists := existing[request.Name]; exists {
			continue
		}
		authority, signs := existing[request.Authority]
		if !signs && request.Usage != UsageAuthority {
			continue // the error for the CA itself says why it is missing
		}
		pair, err := issue(issuer, request, authority, now)
		if err != nil {
			absent.add(request.Name, err)
			continue
		}
		fresh[request.Name] = pair
	}
	return fresh, absent.join("cannot be issued")
}

// Absent returns the names of the requested pairs that do not exist.
func Absent(existing Set, requests []Request) []string {
	var names []string
	for _, request := range requests {
		if _, exists := existing[request.Name]; !exists {
			names = append(names, request.Name)
		}
	}
	return names
}

// issue issues a pair. It fails if the pair would not be valid yet.
func issue(issuer Issuer, request Request, authority KeyPair, now time.Time) (KeyPair, error) {
	fresh, err := issuer.Issue(request, authority)
	if err == nil && early(fresh, now) {
		err = errIssuerAhead
	}
	return fresh, err
}

// early reports whether a pair is not valid yet. Pairs that cannot be parsed are reported elsewhere.
func early(pair KeyPair, now time.Time) bool {
	cert, err := ParseCertificate(pair.Certificate)
	return err == nil && now.Before(cert.NotBefore)
}

var (
	// errIssuerAhead prevents a pair that is not valid yet from replacing one that works.
	errIssuerAhead = problem.Newf("ClockSkew", "the issuer's clock is an hour or more ahead of the management cluster's, so that the certificate would not be valid yet")
	// errNotValidYet leaves it to a person to decide whether the clock is wrong now or was wrong earlier, because
	// reissuing all pairs would replace the masters of every cluster.
	errNotValidYet = problem.Newf("ClockSkew", "the management cluster's clock is behind, or was ahead when it was issued; set it, or delete the Secret for a new one")
)

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

// earlier returns the earlier of two times. A zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Trust returns the set with every CA that signed one of its pairs added to the trust bundle of the CA that the request
// names: an adopted pair brings its own CA, and its peers have to trust that CA too. Pairs that are only kept for their
// key (Keep) are skipped, because their signer does not matter.
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
