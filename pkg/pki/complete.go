package pki

import (
	"bytes"
	"errors"
)

// Issuer makes key pairs.
type Issuer interface {
	Issue(request Request, authority KeyPair) (KeyPair, error)
}

// Complete returns the existing pairs and, for each request that none of them answers, a new one. Authorities that exist
// are never replaced. A request that cannot be answered is left out of the Set and told of in the error; the others go on.
func Complete(existing Set, requests []Request, issuer Issuer) (Set, error) {
	complete := Set{}
	var errs []error
	for _, request := range requests {
		if pair, ok := existing[request.Name]; ok {
			complete[request.Name] = pair
			continue
		}
		pair, err := issuer.Issue(request, complete[request.Authority])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		complete[request.Name] = pair
	}
	return complete, errors.Join(errs...)
}

// Trust returns the set with, as the CA of each authority, every certificate that signed one of its pairs: a pair that
// was adopted from somewhere else brings its own authority along, and its holder has to be believed too.
func Trust(set Set, requests []Request) Set {
	trusting := Set{}
	for name, pair := range set {
		trusting[name] = pair
	}
	for _, request := range requests {
		pair, ok := set[request.Name]
		authority, known := trusting[request.Authority]
		if !ok || !known || bytes.Contains(authority.CA, bytes.TrimSpace(pair.CA)) {
			continue
		}
		authority.CA = append(append(bytes.Clone(authority.CA), '\n'), pair.CA...)
		trusting[request.Authority] = authority
	}
	return trusting
}
