package pki

import (
	"io/fs"
	"regexp"
	"strings"
)

var (
	// issuerReference is how Vault names an issuer within its mount: by id or by name.
	issuerReference = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	// mountPath has no character that a URL reads as anything but text.
	mountPath = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,128}$`)
)

// IssuerIn says whether a path is that of an issuer of Vault in the given mount: <mount>/issuer/<reference>, and nothing else.
func IssuerIn(path, mount string) bool {
	reference, found := strings.CutPrefix(path, mount+"/issuer/")
	return found && issuerReference.MatchString(reference) && mountPath.MatchString(mount) && fs.ValidPath(mount)
}

// IssuerOf says whether a path can be that of an issuer of the authority with the given common name, for readers that do not know how the
// mounts of this management cluster begin. Only IssuerIn is sure.
func IssuerOf(path, commonName string) bool {
	end := strings.LastIndex(path, "/issuer/")
	return end > 0 && commonName != "" && strings.HasSuffix(path[:end], commonName) && IssuerIn(path, path[:end])
}
