// Package certificaterotation is the handler of certificates that are about to expire. It rotates CAs and reports
// certificates that the operator cannot renew. The handler "certificaterenewal" renews the others.
//
// During a rotation, no node may meet a peer with a certificate that it does not trust. So every node first trusts both
// CAs, then the new CA signs, then no node trusts the old CA. A phase begins once every node runs with the phase
// before. Nodes are replaced for this as for any change of boot data.
package certificaterotation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// warning is how long before the expiry the handler reports a certificate that the operator may not renew.
const warning = 30 * 24 * time.Hour

// Writer writes Secrets.
type Writer interface {
	Apply(ctx context.Context, set apply.Set) error
}

// New returns the handler.
func New(w Writer, issuer pki.Issuer) chain.Handler[*state.Cluster] {
	return &handler{writer: w, issuer: issuer}
}

type handler struct {
	writer Writer
	issuer pki.Issuer
}

// Name is the handler's name.
func (h *handler) Name() string { return "certificaterotation" }

// EnsureCreated moves CAs one phase further once every node runs with the current one.
func (h *handler) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	d, err := decide(s)
	if err != nil {
		return chain.Outcome{}, err
	}
	set := apply.Set{Owner: s.Owner("certificates"), Places: s.Places(), CreateOnly: true}
	var errs []error
	for _, name := range d.advance {
		secret, err := h.advance(s, name)
		if err != nil {
			// The results for other CAs are kept because otherwise Vault would have to create them again on each
			// attempt.
			errs = append(errs, err)
			continue
		}
		set.Objects = append(set.Objects, secret)
	}
	if len(set.Objects) > 0 {
		errs = append(errs, h.writer.Apply(ctx, set))
	}
	return d.outcome, errors.Join(errs...)
}

// advance returns the Secret of a CA in the next phase.
func (h *handler) advance(s *state.Cluster, name string) (client.Object, error) {
	pair, err := pki.Advance(s.Certificates[name], func() (pki.KeyPair, error) { return pki.Successor(name, s.Validity.Requests, h.issuer) })
	if err != nil {
		return nil, err
	}
	secret := s.CertificateSecret(name, pair, s.Validity.Versions[name])
	if pki.PhaseOf(s.Certificates[name]) == pki.Stable {
		s.MarkGeneration(secret)
	}
	return secret, nil
}

// EnsureDeleted does nothing because another handler owns the key pairs.
func (h *handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}

// decision is what to do about the CAs of a cluster.
type decision struct {
	// advance are the CAs that move one phase further now.
	advance []string
	outcome chain.Outcome
}

// phases describes what nodes are being replaced for.
var phases = map[pki.Phase]string{
	pki.Stable:   "rotation is about to begin",
	pki.Prepared: "step 1 of 3: old and new CA are trusted",
	pki.Switched: "step 2 of 3: the new CA issues certificates",
}

// decide continues rotations in progress and starts those that are requested or due. It reports what only a person can
// do when there is nothing to rotate.
func decide(s *state.Cluster) (decision, error) {
	waits, now := unsettled(s), s.Now
	var d decision
	var rotating []string
	for _, name := range pki.Authorities {
		phase, rotates := rotationOf(s, name, now)
		if !rotates {
			continue
		}
		if waits == "" {
			d.advance = append(d.advance, name)
		}
		rotating = append(rotating, fmt.Sprintf("%s (%s)", name, phases[phase]))
	}
	switch {
	case len(rotating) > 0 && waits == "":
		d.outcome = chain.Wait("RotatingCAs", "the next step of the CA rotation begins: "+strings.Join(rotating, ", "), 0)
		return d, nil
	case len(rotating) > 0:
		if err := aging(s, now); err != nil {
			return decision{}, err
		}
		d.outcome = chain.Wait("RotatingCAs", strings.Join(rotating, ", ")+": "+waits, 0)
		return d, nil
	}
	if err := errors.Join(others(s), ending(s, now), aging(s, now)); err != nil {
		return decision{}, err
	}
	d.outcome = rest(s, now)
	return d, nil
}

// requested reports whether the KVMConfig requests a rotation that a CA has not had.
func requested(s *state.Cluster, name string) bool {
	return s.AuthorityGeneration() > s.Validity.Generations[name]
}

// rotationOf returns the phase of a CA and whether it has to leave that phase.
func rotationOf(s *state.Cluster, name string, now time.Time) (phase pki.Phase, rotates bool) {
	pair, ok := s.Certificates[name]
	if !ok || s.Adopted[name] || s.Validity.Versions[name] == "" {
		return pki.Stable, false
	}
	phase = pki.PhaseOf(pair)
	due := pki.RotationDue(pair)
	return phase, phase != pki.Stable || requested(s, name) || !due.IsZero() && !now.Before(due)
}

// others reports CAs that are to be rotated but that the operator adopted.
func others(s *state.Cluster) error {
	var names []string
	for _, name := range pki.Authorities {
		if s.Adopted[name] && requested(s, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return problem.Newf("CAAdopted",
		"the operator does not rotate %s because it adopted their Secrets; rotate them where they were created, or set spec.certificates.authorityGeneration back",
		strings.Join(names, ", "))
}

// unsettled returns what still has to happen before every node runs with the current certificates. It is empty when all
// do.
func unsettled(s *state.Cluster) string {
	switch {
	case s.CertificatesErr != nil || len(s.Issuing()) > 0:
		return "certificates are being issued"
	case stale(s) && slices.ContainsFunc(pki.Authorities, func(name string) bool { return pki.PhaseOf(s.Certificates[name]) == pki.Switched }):
		// Earlier phases do not wait for this: the new CA does not sign yet, and a CA that can no longer sign is
		// rotated anyway.
		return "not all certificates could be renewed"
	case s.BootDataErr != nil:
		return s.BootDataErr.Error()
	case s.Workload.Reason != "" && !s.Workload.Connected:
		return "the workload cluster does not answer: " + s.Workload.Message
	case len(s.Leaving)+len(s.Retiring) > 0:
		return "waits for machines of removed nodes to terminate"
	}
	for _, n := range s.Nodes {
		switch {
		case n.Deployment == nil:
			return fmt.Sprintf("%s %s has no machine yet", n.Role, n.ID)
		case n.Outdated():
			return fmt.Sprintf("%s %s still has to be replaced", n.Role, n.ID)
		case !n.Ready:
			return fmt.Sprintf("%s %s is not Ready: %s", n.Role, n.ID, n.Message)
		}
	}
	return ""
}

// stale returns whether pairs could not be renewed, or are not valid yet.
func stale(s *state.Cluster) bool {
	return len(s.Validity.Renewals.Due) > 0 || s.Validity.Renewals.Early != nil
}

// ending reports certificates that expire soon and that the operator may not renew.
func ending(s *state.Cluster, now time.Time) error {
	ends := foreign(s)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		if !now.Before(ends[name].Add(-warning)) {
			errs = append(errs, problem.Newf("CertificateExpiring",
				"certificate %q expires on %s and is not managed by the operator; renew it where its Secret was created",
				name, ends[name].UTC().Format(time.DateOnly)))
		}
	}
	return errors.Join(errs...)
}

// aging reports nodes whose certificates expire soon. Either no new certificates could be issued, or the node has not
// yet been replaced by one that uses them.
func aging(s *state.Cluster, now time.Time) error {
	var errs []error
	least := margin(s)
	for _, n := range s.Nodes {
		if !n.CertificatesEnd.IsZero() && !now.Before(n.CertificatesEnd.Add(-least)) {
			errs = append(errs, problem.Newf("MachineCertificatesExpiring",
				"the machine of %s %s runs with certificates that expire on %s, and has not been replaced by one with newer ones",
				n.Role, n.ID, n.CertificatesEnd.UTC().Format(time.DateOnly)))
		}
	}
	return errors.Join(errs...)
}

// margin is how long before the expiry of its certificates a node that still uses them is reported. It is half of the
// time that there was to replace the node, and at most the time for certificates of others.
func margin(s *state.Cluster) time.Duration {
	least := warning
	for name, pair := range s.Certificates {
		if cert, err := pki.ParseCertificate(pair.Certificate); err == nil && !s.Adopted[name] && pki.OnMachines(name) {
			least = min(least, cert.NotAfter.Sub(cert.NotBefore)/6)
		}
	}
	return least
}

// foreign returns the expiry of adopted certificates.
func foreign(s *state.Cluster) map[string]time.Time {
	ends := map[string]time.Time{}
	for name, pair := range s.Certificates {
		if cert, err := pki.ParseCertificate(pair.Certificate); err == nil && s.Adopted[name] && name != pki.ServiceAccount {
			ends[name] = cert.NotAfter
		}
	}
	return ends
}

// rest waits until the first certificate has to be rotated, renewed or reported.
func rest(s *state.Cluster, now time.Time) chain.Outcome {
	times := []time.Time{s.Validity.Renewals.Next}
	for _, until := range foreign(s) {
		times = append(times, until.Add(-warning))
	}
	least := margin(s)
	for _, n := range s.Nodes {
		if !n.CertificatesEnd.IsZero() {
			times = append(times, n.CertificatesEnd.Add(-least))
		}
	}
	for _, name := range pki.Authorities {
		if !s.Adopted[name] {
			times = append(times, pki.RotationDue(s.Certificates[name]))
		}
	}
	outcome := chain.Done()
	for _, t := range times {
		if wait := t.Sub(now); wait > 0 && (outcome.After == 0 || wait < outcome.After) {
			outcome.After, outcome.Message = wait, "no certificate is due before "+t.UTC().Format(time.DateOnly)
		}
	}
	return outcome
}
