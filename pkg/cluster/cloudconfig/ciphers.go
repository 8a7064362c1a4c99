package cloudconfig

import "strings"

// strongCiphers are the cipher suites that servers of a node accept from clients that use TLS 1.2; those of TLS 1.3
// cannot be configured, and all are strong. The names are those of the CIS benchmark, which does not know the newer
// ones that end with _SHA256.
var strongCiphers = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
}

// cipherSuites returns the flag of this name with strongCiphers.
func cipherSuites(flag string) string { return "--" + flag + "=" + strings.Join(strongCiphers, ",") }
