package joining

import (
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// MostRequests is how many requests of a cluster are processed: twice the number of nodes that a cluster may have.
	MostRequests = 1000
	// mostOfNode is how many open requests of one node are processed: a kubelet creates another one if the last was not
	// signed.
	mostOfNode = 10
)

// Foremost returns the requests that are processed, at most MostRequests. Open requests come first, among those the
// ones of kubelets and bootstrap tokens, and among those the oldest: a client that creates thousands has to wait for
// its own. One node does not displace the requests of others.
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

// rank returns a lower value for requests that are processed first.
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
