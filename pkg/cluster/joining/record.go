package joining

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// KeyPatience is how long the key for which a certificate was approved with a bootstrap token is the only one. A
// machine that is reset before its kubelet has stored the certificate creates another key, and so does a kubelet that
// has waited five minutes for an API server: it exits as soon as the API server is healthy (client certificate
// rotation, exitAfter). Both get a certificate for the other key after this time, as long as their Node has never been
// Ready.
const KeyPatience = time.Minute

// Record is what is recorded of a node pod about how its node joined. It is in an annotation of the pod on the
// management cluster, which no workload cluster can write, so that it survives the operator and is deleted with the
// pod.
type Record struct {
	// Key is the hash of the public key for which a client certificate was last approved with a bootstrap token; empty
	// if none was.
	Key string
	// At is when that was.
	At time.Time
	// Joined means that the Node was Ready once: its kubelet has a certificate, which is on a disk of the pod.
	Joined bool
}

const (
	recordJoined = "joined"
	noKey        = "-"
)

// RecordOf parses the record of a pod. A record of a pod with another UID, as it may exist after a restore from a
// backup, and a record that cannot be parsed are ignored.
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

// Text returns the record of a pod in the form that RecordOf parses.
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

// Joined returns the record of a pod whose Node is Ready, and whether it has changed.
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

// keyHash returns the hash of the public key in a request.
func keyHash(request *x509.CertificateRequest) string {
	sum := sha256.Sum256(request.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}
