package osimage

import (
	"bytes"
	_ "embed" // the signing key
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// flatcarKey is the "Flatcar Buildbot (Official Builds)" key, F88C FEDE FF29 A5B4 D952 3864 E25D 9AED 0593 B34A, as in
// flatcar-install (flatcar/init: bin/flatcar-install), with the two subkeys that have signed releases since March 2023.
// The last one expires on 2027-03-08; what it signed until then remains valid.
//
//go:embed flatcar.asc
var flatcarKey []byte

const keyBlock = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

// Keyring holds the OpenPGP keys that are trusted to sign images. It is safe for concurrent use.
type Keyring struct {
	entities openpgp.EntityList
	// text is what they were parsed from.
	text []byte
}

// FlatcarKeys returns the key that signs releases of Flatcar. It is built in.
func FlatcarKeys() *Keyring {
	keys, err := parseKeys(flatcarKey)
	if err != nil {
		panic(fmt.Sprintf("the built-in signing key: %v", err)) // a test makes sure that this cannot happen
	}
	return keys
}

// KeysFromFile reads public keys from a file, armored or binary, one or many.
func KeysFromFile(path string) (*Keyring, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading signing keys: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("reading signing keys from %s: %w", path, err)
	}
	return keys, nil
}

func parseKeys(text []byte) (*Keyring, error) {
	entities, err := readKeys(text)
	if err == nil && len(entities) == 0 {
		err = errors.New("there is no key in it")
	}
	return &Keyring{entities: entities, text: text}, err
}

func readKeys(text []byte) (openpgp.EntityList, error) {
	if !bytes.Contains(text, []byte(keyBlock)) {
		return openpgp.ReadKeyRing(bytes.NewReader(text))
	}
	var all openpgp.EntityList
	for _, block := range strings.Split(string(text), keyBlock)[1:] {
		entities, err := openpgp.ReadArmoredKeyRing(strings.NewReader(keyBlock + block))
		if err != nil {
			return nil, err
		}
		all = append(all, entities...)
	}
	return all, nil
}

// String lists the primary keys.
func (k *Keyring) String() string {
	var names []string
	for _, entity := range k.entities {
		names = append(names, fmt.Sprintf("%X", entity.PrimaryKey.Fingerprint))
	}
	return strings.Join(names, ", ")
}

// dearmor returns a signature in its binary form.
func dearmor(signature []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(signature), []byte("-----BEGIN ")) {
		return signature, nil
	}
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil {
		return nil, err
	}
	if block.Type != openpgp.SignatureType {
		return nil, fmt.Errorf("it is a %s", block.Type)
	}
	return io.ReadAll(block.Body)
}

// signers lists the keys that made a binary signature, as key IDs.
func signers(signature []byte) ([]uint64, error) {
	var ids []uint64
	packets := packet.NewReader(bytes.NewReader(signature))
	for {
		next, err := packets.Next()
		if errors.Is(err, io.EOF) && len(ids) > 0 {
			return ids, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is no OpenPGP signature: %w", err)
		}
		if s, ok := next.(*packet.Signature); ok && s.IssuerKeyId != nil {
			ids = append(ids, *s.IssuerKeyId)
		}
	}
}

// knows reports whether one of the keys is in the ring.
func (k *Keyring) knows(ids []uint64) bool {
	for _, id := range ids {
		if len(k.entities.EntitiesById(id)) > 0 {
			return true
		}
	}
	return false
}

// check verifies a binary signature of everything that is read from signed. One signature by a trusted key is
// sufficient. The key must have been valid when it signed, because releases outlive the subkeys with which they were
// signed. Weak hashes and revoked keys are rejected.
func (k *Keyring) check(signed io.Reader, signature []byte) error {
	// Keys cache the result of verifying their own signatures, so every check needs its own copies.
	entities, err := readKeys(k.text)
	if err != nil {
		return err
	}
	_, _, err = openpgp.VerifyDetachedSignature(entities, signed, bytes.NewReader(signature), nil)
	return err
}
