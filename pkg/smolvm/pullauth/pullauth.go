// Package pullauth finds the user and the password for the registry of an image in what "docker login" writes, and Secrets
// of type kubernetes.io/dockerconfigjson have. It follows the rules of kubelets
// (https://kubernetes.io/docs/concepts/containers/images/#config-json).
package pullauth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	// maxText bounds a configuration in bytes. A Secret has no more.
	maxText = 1 << 20
	// maxEntries bounds how many registries a configuration has.
	maxEntries = 1000
	// maxCredential bounds a user or a password in bytes. Tokens of clouds have a few thousand.
	maxCredential = 64 << 10
)

// Errors of Parse. They repeat nothing of the text, which has passwords.
var (
	errSize    = fmt.Errorf("it has more than %d bytes, or %d registries", maxText, maxEntries)
	errSyntax  = errors.New(`it is not JSON like {"auths":{"registry.example.org":{"username":"…","password":"…"}}}`)
	errEncoded = errors.New("an auth is not base64 of user:password")
	errLong    = fmt.Errorf("a user or a password has more than %d bytes", maxCredential)
)

// Config is a parsed configuration.
type Config struct{ entries []entry }

// entry is what a configuration has for a registry, or for some of its images.
type entry struct {
	// host may have patterns of path.Match between its dots; path begins with a slash, or is empty for all images.
	host, path string
	auth       api.RegistryAuth
}

// Parse parses a configuration. A tenant writes it. Entries without a user and a password, such as those of helper
// programs, are left out.
func Parse(text []byte) (Config, error) {
	var raw struct {
		Auths map[string]struct {
			Username string `json:"username"`
			Password string `json:"password"`
			Auth     string `json:"auth"`
		} `json:"auths"`
	}
	if len(text) > maxText {
		return Config{}, errSize
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Config{}, errSyntax
	}
	if len(raw.Auths) > maxEntries {
		return Config{}, errSize
	}
	var c Config
	for key, found := range raw.Auths {
		e := entryOf(key)
		e.auth = api.RegistryAuth{Username: found.Username, Password: found.Password}
		if found.Auth != "" {
			var ok bool
			if e.auth, ok = decoded(found.Auth); !ok {
				return Config{}, errEncoded
			}
		}
		if len(e.auth.Username) > maxCredential || len(e.auth.Password) > maxCredential {
			return Config{}, errLong
		}
		if e.auth != (api.RegistryAuth{}) {
			c.entries = append(c.entries, e)
		}
	}
	// What says more of a name comes first, and the order is always the same.
	slices.SortFunc(c.entries, func(a, b entry) int { return strings.Compare(b.host+b.path, a.host+a.path) })
	return c, nil
}

// decoded returns the user and the password of an auth, with or without padding.
func decoded(auth string) (api.RegistryAuth, bool) {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(auth, "="))
	user, password, ok := strings.Cut(string(text), ":")
	return api.RegistryAuth{Username: user, Password: strings.TrimRight(password, "\x00")}, err == nil && ok
}

// entryOf returns the host and the path of a key: registry.example.org, registry.example.org/team, *.example.org, or a
// URL like https://index.docker.io/v1/.
func entryOf(key string) entry {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, rest, _ := strings.Cut(key, "/")
	rest = "/" + strings.Trim(rest, "/")
	for _, version := range []string{"/v1", "/v2"} {
		if rest == version || strings.HasPrefix(rest, version+"/") {
			rest = strings.TrimPrefix(rest, version)
		}
	}
	if rest == "/" {
		rest = ""
	}
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	return entry{host: host, path: rest}
}

// For returns the credentials for an image; nil if there are none. The registry of an image is found as the runtime finds
// it, which sends them there and nowhere else.
func (c Config) For(image string) *api.RegistryAuth {
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil // the runtime says what is wrong with it
	}
	host, repository := reference.Context().RegistryStr(), "/"+reference.Context().RepositoryStr()
	for _, e := range c.entries {
		if e.isOf(host) && (e.path == "" || repository == e.path || strings.HasPrefix(repository, e.path+"/")) {
			return &e.auth
		}
	}
	return nil
}

// isOf returns whether an entry is for a host, which may have a port. Each part of its pattern is one of the host's.
func (e entry) isOf(host string) bool {
	wanted, port, _ := strings.Cut(host, ":")
	pattern, patternPort, _ := strings.Cut(e.host, ":")
	wants, patterns := strings.Split(wanted, "."), strings.Split(pattern, ".")
	if e.host == host {
		return true
	}
	if port != patternPort || len(wants) != len(patterns) {
		return false
	}
	for i := range wants {
		if ok, err := path.Match(patterns[i], wants[i]); !ok || err != nil {
			return false
		}
	}
	return true
}
