package pki

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/giantswarm/microerror"
)

// NewRandomKey makes the random key of the given name: a bootstrap token "<6 characters>.<16 characters>" of lower-case
// letters and digits, else base64 text of 32 bytes.
func NewRandomKey(name string) (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", microerror.Mask(err)
	}
	if name != "bootstrap-token" {
		return base64.StdEncoding.EncodeToString(raw), nil
	}
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	token := make([]byte, 23)
	for i := range token {
		// 32 characters and 256 byte values: every character is as likely as any other.
		token[i] = alphabet[int(raw[i])%len(alphabet)]
	}
	token[6] = '.'
	return string(token), nil
}
