package ociimage

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/google/go-containerregistry/pkg/name"
)

// maxReference bounds a reference, in bytes.
const maxReference = 512

// ReferenceError says why a text is no reference of an image.
type ReferenceError struct {
	// Reference is the text, without credentials.
	Reference string
	// Reason is what is wrong with it.
	Reason string
}

// Error names the reference and the reason.
func (e *ReferenceError) Error() string {
	return fmt.Sprintf("%q is no reference of an image: %s", e.Reference, e.Reason)
}

// What a reference consists of (OCI distribution specification, "Pulling manifests").
var (
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	hostPattern   = regexp.MustCompile(`^([a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*(\.[a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*)*|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?$`)
	namePattern   = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagPattern    = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
)

// reference names an image: by tag, or by digest.
type reference struct {
	// text is what the tenant wrote.
	text string
	name name.Reference
	// digest is empty for a tag.
	digest string
}

// parseReference parses a reference as docker does: alpine is docker.io/library/alpine:latest. Tenants write it.
func parseReference(text string) (reference, error) {
	wrong := func(reason string) (reference, error) {
		return reference{}, &ReferenceError{Reference: shown(text), Reason: reason}
	}
	before, digest, byDigest := strings.Cut(text, "@")
	switch {
	case text == "" || len(text) > maxReference:
		return wrong(fmt.Sprintf("it has to have 1 to %d bytes", maxReference))
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > unicode.MaxASCII || unicode.IsControl(r) }):
		return wrong("it has spaces, control characters or letters beyond ASCII")
	case strings.Contains(text, "://"):
		return wrong("it has a scheme; write registry.example.org/name:tag")
	case byDigest && strings.Contains(digest, "/"):
		return wrong("it has credentials; they belong in the configuration of the registry")
	case byDigest && !digestPattern.MatchString(digest):
		return wrong("a digest is sha256: and 64 hexadecimal digits")
	case before == "":
		return wrong("it has no name")
	}
	parsed, err := name.ParseReference(text)
	if err != nil {
		return wrong("it has to be like registry.example.org/name:tag, with a name in lower-case letters")
	}
	tag, tagged := parsed.(name.Tag)
	switch registry := parsed.Context().RegistryStr(); { // the library is less strict, and parts of a path could lead elsewhere on a registry
	case !hostPattern.MatchString(registry):
		return wrong("it has to begin with a host, or a host and a port, or a name")
	case !namePattern.MatchString(parsed.Context().RepositoryStr()):
		return wrong("the parts of a name have lower-case letters and digits, and '.', '_' and '-' between them")
	case tagged && !tagPattern.MatchString(tag.TagStr()):
		return wrong("a tag begins with a letter, a digit or '_', and has at most 128 of these, '.' and '-'")
	}
	return reference{text: text, name: parsed, digest: digest}, nil
}

// shown returns a reference that may have credentials without them, and not too long.
func shown(text string) string {
	if before, after, ok := strings.Cut(text, "@"); ok && strings.Contains(after, "/") {
		scheme := ""
		if i := strings.Index(before, "://"); i >= 0 {
			scheme = before[:i+3]
		}
		text = scheme + "…@" + text[strings.LastIndex(text, "@")+1:]
	}
	return words(text)
}

// query is the part of a URL that may be a signature.
var query = regexp.MustCompile(`\?[^\s"]*`)

// maxWords bounds what is repeated of the words of a registry, in bytes.
const maxWords = 400

// words returns the text of a registry, which may be hostile, as one line that is not too long and has no query of a URL.
func words(text string) string {
	text = query.ReplaceAllString(strings.ToValidUTF8(text, "?"), "")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "…"
	}
	return text
}
