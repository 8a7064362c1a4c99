package pki

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/giantswarm/microerror"
)

// NewRandomKey generates the random key of the given name: for "bootstrap-token" a token "<6 characters>.<16
// characters>" of lower-case letters and digits, otherwise 32 bytes as base64 text.
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
		// The alphabet has 32 characters and a byte has 256 values, so all characters are equally likely.
		token[i] = alphabet[int(raw[i])%len(alphabet)]
	}
	token[6] = '.'
	return string(token), nil
}
