package joining

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// KeyPatience is how long the key for which a certificate was approved by bootstrap token is the only one. A machine that is reset before its
// kubelet has stored the certificate makes another key, and so does a kubelet that has waited five minutes for an API server: it ends as soon as
// that is healthy (client certificate rotation, exitAfter). Either gets a certificate for the other key after this time, as long as its Node has
// never been Ready.
const KeyPatience = time.Minute

// Record is what is noted of a node pod about how its node joined. It stands in an annotation of the pod on the management cluster, which no
// workload cluster can write, so that it outlives the operator and goes with the pod.
type Record struct {
	// Key is the hash of the public key for which a client certificate was approved last by bootstrap token; empty when none was.
	Key string
	// At is when.
	At time.Time
	// Joined says that the Node was Ready once: its kubelet has a certificate, which lies on a disk of the pod.
	Joined bool
}

const (
	recordJoined = "joined"
	noKey        = "-"
)

// RecordOf reads what is noted of a pod. What was noted of a pod with another UID, as it may be after a restore from a backup, and what cannot
// be read says nothing.
func RecordOf(pod *corev1.Pod) Record {
	parts := strings.Fields(pod.Annotations[key.AnnotationJoining])
	if len(parts) < 3 || parts[0] != string(pod.UID) {
		return Record{}
	}
	at, err := time.Parse(time.RFC3339, parts[2])
	if err != nil {
		return Record{}
	}
	record := Record{Key: parts[1], At: at, Joined: len(parts) > 3 && parts[3] == recordJoined}
	if record.Key == noKey {
		record.Key = ""
	}
	return record
}

// Text is the record of a pod as RecordOf reads it.
func (r Record) Text(pod *corev1.Pod) string {
	publicKey := r.Key
	if publicKey == "" {
		publicKey = noKey
	}
	parts := []string{string(pod.UID), publicKey, r.At.UTC().Format(time.RFC3339)}
	if r.Joined {
		parts = append(parts, recordJoined)
	}
	return strings.Join(parts, " ")
}

// Joined is the record of a pod whose Node is Ready, and whether it says something new.
func Joined(pod *corev1.Pod, now time.Time) (record Record, changed bool) {
	record = RecordOf(pod)
	if record.Joined {
		return record, false
	}
	if record.Key == "" {
		record.At = now
	}
	record.Joined = true
	return record, true
}

// keyHash is the hash of the public key in a request.
func keyHash(request *x509.CertificateRequest) string {
	sum := sha256.Sum256(request.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}
