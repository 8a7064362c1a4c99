package joining

import (
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// MostRequests is how many requests of a cluster are looked at: those of the nodes that a cluster may have, and as many again.
	MostRequests = 1000
	// mostOfNode is how many of those one node may have that have no answer: a kubelet makes another one when the last was not signed.
	mostOfNode = 10
)

// Foremost are the requests that are looked at, at most MostRequests. Those without an answer go first, of those the ones that a kubelet or a
// bootstrap token makes, and of those the oldest: whoever makes thousands waits for the answers to his own. One node does not take the places of
// the others.
func Foremost(requests []certificatesv1.CertificateSigningRequest) []certificatesv1.CertificateSigningRequest {
	slices.SortFunc(requests, func(a, b certificatesv1.CertificateSigningRequest) int {
		if r := rank(&a) - rank(&b); r != 0 {
			return r
		}
		if r := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); r != 0 {
			return r
		}
		return strings.Compare(a.Name, b.Name)
	})
	of := map[string]int{}
	requests = slices.DeleteFunc(requests, func(r certificatesv1.CertificateSigningRequest) bool {
		if decided(&r) || !strings.HasPrefix(r.Spec.Username, nodePrefix) {
			return false
		}
		of[r.Spec.Username]++
		return of[r.Spec.Username] > mostOfNode
	})
	return requests[:min(len(requests), MostRequests)]
}

// rank is lower for requests that are looked at first.
func rank(r *certificatesv1.CertificateSigningRequest) int {
	switch {
	case decided(r):
		return 2
	case strings.HasPrefix(r.Spec.Username, nodePrefix), strings.HasPrefix(r.Spec.Username, bootstrapPrefix):
		return 0
	default:
		return 1
	}
}
