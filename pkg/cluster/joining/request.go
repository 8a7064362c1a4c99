package joining

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/lru"
)

// pemStart is how a request starts: the signer takes the first block that it finds, so nothing may come before it, not
// even an invalid block.
const pemStart = "-----BEGIN CERTIFICATE REQUEST-----"

// LongestRequest is the maximum size of a request in bytes, and largestKey the maximum size of its RSA key in bits.
// Requests of kubelets have ECDSA keys and are ten times shorter; the time to verify a signature grows with the square
// of the size of an RSA key.
const (
	LongestRequest = 8 << 10
	largestKey     = 8 << 10
)

// mostRead is how many parsed requests are cached.
const mostRead = 2048

// read caches parsed requests by their SHA-256, because they are needed at each reconcile, and verifying a signature
// takes time.
var read = lru.New(mostRead)

type result struct {
	request *x509.CertificateRequest
	err     error
}

// parse parses a request, once. Its result is shared and must not be changed.
func parse(text []byte) (*x509.CertificateRequest, error) {
	hash := sha256.Sum256(text)
	if known, ok := read.Get(hash); ok {
		return known.(result).request, known.(result).err
	}
	request, err := verify(text)
	read.Add(hash, result{request: request, err: err})
	return request, err
}

// verify parses the one PEM block with a request whose signature proves that the requestor has the key.
func verify(text []byte) (*x509.CertificateRequest, error) {
	if len(text) > LongestRequest {
		return nil, fmt.Errorf("it is longer than %d bytes", LongestRequest)
	}
	text = bytes.TrimSpace(text)
	block, rest := pem.Decode(text)
	if block == nil || !bytes.HasPrefix(text, []byte(pemStart)) || bytes.Count(text, []byte("-----BEGIN")) > 1 || len(rest) > 0 {
		return nil, errors.New("it is not exactly one PEM block CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		// The parser's error may repeat what the requestor wrote.
		return nil, errors.New("it is no PKCS #10 request")
	}
	if k, ok := request.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() > largestKey {
		return nil, fmt.Errorf("its RSA key has more than %d bits", largestKey)
	}
	if request.CheckSignature() != nil {
		return nil, errors.New("its signature does not fit its key")
	}
	return request, nil
}

// Approved returns whether a request was approved, signed or not.
func Approved(request *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved
	})
}

// decided returns whether the request needs no decision.
func decided(request *certificatesv1.CertificateSigningRequest) bool {
	if len(request.Status.Certificate) > 0 || request.DeletionTimestamp != nil {
		return true
	}
	return slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return slices.Contains([]certificatesv1.RequestConditionType{
			certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
		}, c.Type)
	})
}

// usageProblem returns what is wrong with the usages; empty if they are those of a kubelet with the given purpose.
func usageProblem(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) string {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose}
	for _, usage := range usages {
		if !slices.Contains(allowed, usage) {
			return fmt.Sprintf("the usage %s is not one of %q", shown(string(usage)), allowed)
		}
	}
	if !slices.Contains(usages, purpose) {
		return fmt.Sprintf("the usage %q is missing", purpose)
	}
	return ""
}

// shown quotes what a requestor wrote, truncated to fit into a sentence.
func shown(text string) string {
	const longest = 80
	if len(text) > longest {
		return fmt.Sprintf("%q…", text[:longest])
	}
	return fmt.Sprintf("%q", text)
}
