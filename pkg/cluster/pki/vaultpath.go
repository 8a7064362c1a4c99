package pki

import (
	"io/fs"
	"regexp"
	"strings"
)

var (
	// issuerReference is how Vault refers to an issuer within its mount: by id or by name.
	issuerReference = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	// mountPath allows only characters that have no special meaning in a URL.
	mountPath = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,128}$`)
)

// IssuerIn reports whether path is exactly that of a Vault issuer in the given mount: <mount>/issuer/<reference>.
func IssuerIn(path, mount string) bool {
	reference, found := strings.CutPrefix(path, mount+"/issuer/")
	return found && issuerReference.MatchString(reference) && mountPath.MatchString(mount) && fs.ValidPath(mount)
}

// IssuerOf reports whether path can be that of an issuer of the CA with the given common name, for readers that do not
// know the mount prefix of this management cluster. Only IssuerIn is certain.
func IssuerOf(path, commonName string) bool {
	end := strings.LastIndex(path, "/issuer/")
	return end > 0 && commonName != "" && strings.HasSuffix(path[:end], commonName) && IssuerIn(path, path[:end])
}
