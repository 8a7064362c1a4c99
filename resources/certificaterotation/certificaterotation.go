// Package certificaterotation is the handler of certificates whose term comes to its end: it takes authorities to their successors and
// tells what cannot be issued anew. Other pairs are issued anew as they are gathered, see pki.Complete.
//
// While an authority is succeeded, no machine may meet another that it does not believe. So every machine first believes both, then
// the successor signs, then nobody believes the predecessor any more; and each phase begins once every machine runs with the one
// before, for which nodes are replaced as for any change of boot data.
package certificaterotation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// warning is how long before the end of a certificate that the operator may not issue anew it is told of.
const warning = 30 * 24 * time.Hour

// Writer writes Secrets.
type Writer interface {
	Apply(ctx context.Context, set apply.Set) error
}

// New makes the handler.
func New(w Writer, c clock.PassiveClock) chain.Handler[*cluster.Snapshot] {
	return &handler{writer: w, clock: c}
}

type handler struct {
	writer Writer
	clock  clock.PassiveClock
}

// Name is the handler's name.
func (h *handler) Name() string { return "certificaterotation" }

// EnsureCreated takes authorities one phase further when every machine has come along.
func (h *handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	now := h.clock.Now()
	d, err := decide(s, now)
	if err != nil {
		return chain.Outcome{}, err
	}
	set := apply.Set{Owner: s.Owner("certificates"), Places: s.Places(), CreateOnly: true}
	var errs []error
	for _, name := range d.further {
		pair, err := pki.Succeed(s.Certificates[name], func() (pki.KeyPair, error) { return s.Terms.Successor(name) })
		if err != nil {
			// What was made for others is kept: Vault would have to make it once more each time.
			errs = append(errs, err)
			continue
		}
		secret := s.CertificateSecret(name, pair, s.Terms.Versions[name])
		if pki.PhaseOf(s.Certificates[name]) == pki.Alone {
			s.MarkGeneration(secret)
		}
		set.Objects = append(set.Objects, secret)
	}
	if len(set.Objects) > 0 {
		errs = append(errs, h.writer.Apply(ctx, set))
	}
	return d.outcome, errors.Join(errs...)
}

// EnsureDeleted has nothing to do: the pairs are another handler's.
func (h *handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}

// decision is what to do about the authorities of a cluster.
type decision struct {
	// further are those that go one phase further now.
	further []string
	outcome chain.Outcome
}

// phases tell what machines begin anew for.
var phases = map[pki.Phase]string{
	pki.Alone:     "before its succession begins",
	pki.Announced: "step 1 of 3, its successor is believed as well",
	pki.Succeeded: "step 2 of 3, its successor signs",
}

// decide: what is going on goes on first, what is wished or due begins next, and what only a person can do is told at last.
func decide(s *cluster.Snapshot, now time.Time) (decision, error) {
	waits := unsettled(s)
	var d decision
	var going []string
	for _, name := range pki.Authorities {
		phase, moves := course(s, name, now)
		if !moves {
			continue
		}
		if waits == "" {
			d.further = append(d.further, name)
		}
		going = append(going, fmt.Sprintf("%s (%s)", name, phases[phase]))
	}
	switch {
	case len(going) > 0 && waits == "":
		d.outcome = chain.Wait("RotatingAuthorities", "the next step begins for "+strings.Join(going, ", "), 0)
		return d, nil
	case len(going) > 0:
		if err := aging(s, now); err != nil {
			return decision{}, err
		}
		d.outcome = chain.Wait("RotatingAuthorities", strings.Join(going, ", ")+": "+waits, retry(s))
		return d, nil
	case s.Terms.Failed != nil:
		return decision{}, errors.Join(aging(s, now), s.Terms.Failed)
	}
	if err := errors.Join(others(s), ending(s, now), aging(s, now)); err != nil {
		return decision{}, err
	}
	d.outcome = rest(s, now)
	return d, nil
}

// wished says whether the KVMConfig asks for a successor that an authority has not had.
func wished(s *cluster.Snapshot, name string) bool {
	return s.AuthorityGeneration() > s.Terms.Generations[name]
}

// course says in which phase an authority is, and whether it has to leave it.
func course(s *cluster.Snapshot, name string, now time.Time) (phase pki.Phase, moves bool) {
	pair, ok := s.Certificates[name]
	if !ok || s.Adopted[name] || s.Terms.Versions[name] == "" {
		return pki.Alone, false
	}
	phase = pki.PhaseOf(pair)
	due := pki.SuccessionDue(pair)
	return phase, phase != pki.Alone || wished(s, name) || !due.IsZero() && !now.Before(due)
}

// others tells of authorities that are to be succeeded and belong to somebody else.
func others(s *cluster.Snapshot) error {
	var names []string
	for _, name := range pki.Authorities {
		if s.Adopted[name] && wished(s, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return problem.Newf("AuthorityAdopted",
		"the operator does not rotate %s because it adopted their Secrets; rotate them where they were created, or set spec.certificates.authorityGeneration back",
		strings.Join(names, ", "))
}

// unsettled says what is waited for until every machine runs with the certificates that are known now; empty when all do.
func unsettled(s *cluster.Snapshot) string {
	switch {
	case len(s.Terms.Renewed) > 0 || s.CertificatesErr != nil:
		return "certificates are being issued"
	case s.Terms.Failed != nil && slices.ContainsFunc(pki.Authorities, func(name string) bool { return pki.PhaseOf(s.Certificates[name]) == pki.Succeeded }):
		// Before, the successor cannot sign yet; and whoever cannot sign any more is succeeded all the same.
		return s.Terms.Failed.Error()
	case s.BootDataErr != nil:
		return s.BootDataErr.Error()
	case s.Workload.Reason != "" && !s.Workload.Connected:
		return "the workload cluster does not answer: " + s.Workload.Message
	case len(s.Leaving)+len(s.Retiring) > 0:
		return "machines of nodes that were removed are going"
	}
	for _, n := range s.Nodes {
		switch {
		case n.Deployment == nil:
			return fmt.Sprintf("%s %s has no machine yet", n.Role, n.ID)
		case n.Outdated():
			return fmt.Sprintf("%s %s has to be replaced", n.Role, n.ID)
		case !n.Ready:
			return fmt.Sprintf("%s %s is not Ready: %s", n.Role, n.ID, n.Message)
		}
	}
	return ""
}

// retry is when to try again what could not be issued; zero when nothing could not.
func retry(s *cluster.Snapshot) time.Duration {
	if s.Terms.Failed != nil {
		return time.Minute
	}
	return 0
}

// ending tells of certificates that are about to end and that the operator may not issue anew.
func ending(s *cluster.Snapshot, now time.Time) error {
	ends := foreign(s)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		if !now.Before(ends[name].Add(-warning)) {
			errs = append(errs, problem.Newf("CertificateEnds",
				"certificate %q is not the operator's and expires on %s; renew it where its Secret was created",
				name, ends[name].UTC().Format(time.DateOnly)))
		}
	}
	return errors.Join(errs...)
}

// aging tells of machines whose certificates are about to end: none could be issued in their place, or the turn of the machine to begin anew
// with those has not come.
func aging(s *cluster.Snapshot, now time.Time) error {
	var errs []error
	least := margin(s)
	for _, n := range s.Nodes {
		if !n.CertificatesEnd.IsZero() && !now.Before(n.CertificatesEnd.Add(-least)) {
			errs = append(errs, problem.Newf("MachineCertificatesEnd",
				"the machine of %s %s runs with certificates that end on %s, and has not been replaced by one with newer ones",
				n.Role, n.ID, n.CertificatesEnd.UTC().Format(time.DateOnly)))
		}
	}
	return errors.Join(errs...)
}

// margin is how long before its certificates end a machine that still runs with them is told of: half of the time that there was to replace
// it, and no longer than that of others' certificates.
func margin(s *cluster.Snapshot) time.Duration {
	least := warning
	for name, pair := range s.Certificates {
		if cert, err := pki.ParseCertificate(pair.Certificate); err == nil && !s.Adopted[name] && pki.OnMachines(name) {
			least = min(least, cert.NotAfter.Sub(cert.NotBefore)/6)
		}
	}
	return least
}

// foreign are the ends of the certificates of others.
func foreign(s *cluster.Snapshot) map[string]time.Time {
	ends := map[string]time.Time{}
	for name, pair := range s.Certificates {
		if cert, err := pki.ParseCertificate(pair.Certificate); err == nil && s.Adopted[name] && name != pki.ServiceAccount {
			ends[name] = cert.NotAfter
		}
	}
	return ends
}

// rest is until the first certificate needs care.
func rest(s *cluster.Snapshot, now time.Time) chain.Outcome {
	times := []time.Time{s.Terms.Next}
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
			times = append(times, pki.SuccessionDue(s.Certificates[name]))
		}
	}
	outcome := chain.Done()
	for _, t := range times {
		if wait := t.Sub(now); wait > 0 && (outcome.After == 0 || wait < outcome.After) {
			outcome.After, outcome.Message = wait, "no certificate needs care before "+t.UTC().Format(time.DateOnly)
		}
	}
	return outcome
}
