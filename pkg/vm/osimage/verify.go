package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// MismatchError says that a file is not the requested one: it was changed, or its description is wrong.
type MismatchError struct {
	// File is its URL, without credentials and query.
	File string
	// Expected is a checksum, or whose signature was expected.
	Expected string
	// Actual is the file's checksum, or what is wrong with its signature and who made it.
	Actual string
}

// Error names file, expected and actual.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s failed verification: want %s, got %s", e.File, e.Expected, e.Actual)
}

// signature is a detached signature that was made by a trusted key.
type signature struct {
	binary  []byte
	signers []uint64
}

// newSignature rejects signatures that no trusted key made, before anything large is downloaded.
func newSignature(file File, keys *Keyring, text []byte) (*signature, error) {
	binary, err := dearmor(text)
	var ids []uint64
	if err == nil {
		ids, err = signers(binary)
	}
	s := &signature{binary: binary, signers: ids}
	switch {
	case err != nil:
		return nil, s.mismatch(file, keys, "a broken one: "+err.Error())
	case !keys.knows(ids):
		return nil, s.mismatch(file, keys, "one by "+s.who()+", which is not trusted")
	}
	return s, nil
}

func (s *signature) who() string {
	var names []string
	for _, id := range s.signers {
		names = append(names, fmt.Sprintf("key %016X", id))
	}
	return strings.Join(names, ", ")
}

func (s *signature) mismatch(file File, keys *Keyring, actual string) error {
	return &MismatchError{File: show(file.URL), Expected: "a signature by " + keys.String(), Actual: actual}
}

// verify reads the file at path, checks it against everything known of it and returns its checksum. The signature may
// be nil.
func verify(ctx context.Context, path string, file File, keys *Keyring, s *signature) (string, error) {
	content, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer content.Close() //nolint:errcheck // it was only read
	hash := sha256.New()
	reader := &patientReader{ctx: ctx, from: io.TeeReader(content, hash)}
	var wrong error
	if s != nil {
		wrong = keys.check(reader, s.binary)
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return "", err
	}
	if reader.err != nil {
		return "", reader.err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if file.SHA256 != "" && file.SHA256 != sum {
		return "", &MismatchError{File: show(file.URL), Expected: "sha256 " + file.SHA256, Actual: "sha256 " + sum}
	}
	if wrong != nil {
		return "", s.mismatch(file, keys, "one by "+s.who()+" that is not valid: "+strings.TrimPrefix(wrong.Error(), "openpgp: "))
	}
	return sum, nil
}

// patientReader ends with ctx and records the error of reading the file, so that it is not mistaken for an error of the
// signature.
type patientReader struct {
	ctx  context.Context
	from io.Reader
	err  error
}

func (r *patientReader) Read(p []byte) (int, error) {
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}
