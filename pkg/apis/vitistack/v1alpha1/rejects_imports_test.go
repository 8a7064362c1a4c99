package v1alpha1_test

import (
	"fmt"
	"strings"
)

func badURL(url string) rejection {
	return disk(fmt.Sprintf("source: {http: {url: %q}}", url),
		fmt.Sprintf(".source.http.url: Invalid value: %q: must be an http:// or https:// URL without user name and password; use secretRef for these", url))
}

func badReference(url string) rejection {
	return disk(fmt.Sprintf("source: {registry: {url: %q}}", url),
		fmt.Sprintf(".source.registry.url: Invalid value: %q: must be docker:// and the reference of an image with its registry, "+
			"for example docker://quay.io/containerdisks/debian:13, without user name and password; use secretRef for these", url))
}

// rejectedImports are about disks that CDI imports.
var rejectedImports = map[string]rejection{
	"an import without a URL":        disk("source: {http: {}}", ".source.http.url: Required value"),
	"an empty URL":                   badURL(""),
	"a URL of another scheme":        badURL("ftp://example.com/a.img"),
	"a file":                         badURL("file:///etc/passwd"),
	"a URL with a user name":         badURL("https://me@example.com/a.img"),
	"a URL with a password":          badURL("https://me:secret@example.com/a.img"),
	"a URL without a host":           badURL("https:///a.img"),
	"a URL with a space":             badURL("https://example.com/a b.img"),
	"a URL with a line":              badURL("https://example.com/a\nb"),
	"a URL of 2049 bytes":            disk("source: {http: {url: https://example.com/"+strings.Repeat("a", 2029)+"}}", tooLong(".source.http.url", 2048)),
	"an import with an empty Secret": disk(`source: {http: {url: "https://a", secretRef: {name: ""}}}`, `.source.http.secretRef.name: Invalid value: "": spec.disks[0].source.http.secretRef.name in body should be at least 1 chars long`),
	"a Secret of another namespace": {
		change: `spec: {disks: [{source: {http: {url: "https://a", secretRef: {name: b, namespace: c}}}}]}`,
		want:   `Machine in version "v1alpha1" cannot be handled as a Machine: strict decoding error: unknown field "spec.disks[0].source.http.secretRef.namespace"`,
	},
	"a registry without a URL":                    disk("source: {registry: {}}", ".source.registry.url: Required value"),
	"an image without a scheme":                   badReference("quay.io/containerdisks/debian:13"),
	"an image of another scheme":                  badReference("oci-archive://quay.io/containerdisks/debian:13"),
	"an image without a registry":                 badReference("docker://debian"),
	"an image with a user name":                   badReference("docker://me:secret@quay.io/containerdisks/debian:13"),
	"an image with a short digest":                badReference("docker://quay.io/a@sha256:00"),
	"an image whose reference is 1025 bytes":      disk("source: {registry: {url: docker://a/"+strings.Repeat("a", 1014)+"}}", tooLong(".source.registry.url", 1024)),
	"an image and a URL":                          disk(`source: {http: {url: "https://a"}, registry: {url: "docker://a/b"}}`, oneSource),
	"a certificate of a ConfigMap without a name": disk(`source: {registry: {url: "docker://a/b", certConfigMapRef: {}}}`, ".source.registry.certConfigMapRef.name: Required value"),
}
