package pullauth

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// with returns a configuration with an entry for each key, whose password is the key.
func with(keys ...string) string {
	var entries []string
	for _, key := range keys {
		entries = append(entries, fmt.Sprintf(`%q:{"auth":%q}`, key, base64.StdEncoding.EncodeToString([]byte("user:"+key))))
	}
	return `{"auths":{` + strings.Join(entries, ",") + `}}`
}

func TestCredentialsAreThoseOfTheRegistry(t *testing.T) {
	for name, test := range map[string]struct {
		config, image string
		// want is the password; empty for none.
		want string
	}{
		"the host":                                {with("registry.example.org"), "registry.example.org/a/web:v1", "registry.example.org"},
		"another host":                            {with("registry.example.org"), "registry.example.com/a/web:v1", ""},
		"a host that ends alike":                  {with("example.org"), "registry.example.org/web", ""},
		"a host that begins alike":                {with("registry.example.org"), "registry.example.org.mallory.example/web", ""},
		"the port":                                {with("registry.example.org:5000"), "registry.example.org:5000/web", "registry.example.org:5000"},
		"another port":                            {with("registry.example.org:5000"), "registry.example.org:5001/web", ""},
		"no port":                                 {with("registry.example.org"), "registry.example.org:5000/web", ""},
		"a path":                                  {with("registry.example.org/team-a"), "registry.example.org/team-a/web", "registry.example.org/team-a"},
		"a path that is the image":                {with("registry.example.org/team-a/web"), "registry.example.org/team-a/web@sha256:" + strings.Repeat("0", 64), "registry.example.org/team-a/web"},
		"a path that begins alike":                {with("registry.example.org/team-a"), "registry.example.org/team-ab/web", ""},
		"the longest path of several":             {with("registry.example.org", "registry.example.org/a/b", "registry.example.org/a"), "registry.example.org/a/b/c", "registry.example.org/a/b"},
		"a URL":                                   {with("https://registry.example.org/v2/"), "registry.example.org/web", "https://registry.example.org/v2/"},
		"a URL of a path":                         {with("https://registry.example.org/v2/team"), "registry.example.org/team/web", "https://registry.example.org/v2/team"},
		"docker's key for its hub":                {with("https://index.docker.io/v1/"), "nginx", "https://index.docker.io/v1/"},
		"the hub by its name":                     {with("docker.io"), "docker.io/library/nginx:1", "docker.io"},
		"the hub for another":                     {with("docker.io"), "quay.io/nginx", ""},
		"a pattern":                               {with("*.dkr.ecr.*.example.org"), "1234.dkr.ecr.eu.example.org/web", "*.dkr.ecr.*.example.org"},
		"a pattern stays within a part":           {with("*.example.org"), "a.b.example.org/web", ""},
		"a pattern that is wrong":                 {with("[.example.org"), "a.example.org/web", ""},
		"a pattern for all":                       {with("*"), "registry.example.org/web", ""},
		"an address":                              {with("[::1]:5000"), "[::1]:5000/web", "[::1]:5000"},
		"an image that is none":                   {with("registry.example.org"), "registry.example.org/WEB", ""},
		"a user and a password":                   {`{"auths":{"r.io":{"username":"user","password":"secret:1"}}}`, "r.io/web", "secret:1"},
		"an auth is worth more":                   {`{"auths":{"r.io":{"username":"x","password":"y","auth":"dXNlcjpw"}}}`, "r.io/web", "p"},
		"an auth without padding":                 {`{"auths":{"r.io":{"auth":"` + strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("user:p1")), "=") + `"}}}`, "r.io/web", "p1"},
		"a helper program that has it":            {`{"auths":{"r.io":{}},"credsStore":"desktop"}`, "r.io/web", ""},
		"a password with a colon":                 {`{"auths":{"r.io":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("user:a:b")) + `"}}}`, "r.io/web", "a:b"},
		"nothing":                                 {`{}`, "r.io/web", ""},
		"an entry without a host, for everything": {with(""), "r.io/web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse([]byte(test.config))
			if err != nil {
				t.Fatal(err)
			}
			var want *api.RegistryAuth
			if test.want != "" {
				want = &api.RegistryAuth{Username: "user", Password: test.want}
			}
			if diff := cmp.Diff(want, c.For(test.image)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfigurationsThatAreNone(t *testing.T) {
	many := make([]string, maxEntries+1)
	for i := range many {
		many[i] = fmt.Sprint("r", i, ".io")
	}
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"no JSON":                {"topsecret", errSyntax},
		"no object":              {`["topsecret"]`, errSyntax},
		"a user that is no text": {`{"auths":{"r.io":{"username":1,"password":"topsecret"}}}`, errSyntax},
		"no base64":              {`{"auths":{"r.io":{"auth":"topsecret!"}}}`, errEncoded},
		"no colon":               {`{"auths":{"r.io":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("topsecret")) + `"}}}`, errEncoded},
		"too large":              {`{"auths":{"r.io":{"password":"` + strings.Repeat("x", maxText) + `"}}}`, errSize},
		"too many":               {with(many...), errSize},
		"a long password":        {`{"auths":{"r.io":{"password":"` + strings.Repeat("x", maxCredential+1) + `"}}}`, errLong},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(test.text)); err != test.want || strings.Contains(err.Error(), "topsecret") { //nolint:errorlint // none of them is wrapped
				t.Errorf("the error is %v, want %v", err, test.want)
			}
		})
	}
}

// FuzzParse: whatever a tenant writes, credentials of one host are not sent to another one.
func FuzzParse(f *testing.F) {
	f.Add([]byte(with("registry.example.org", "*.example.com", "https://index.docker.io/v1/")), "registry.example.org/web")
	f.Add([]byte(`{"auths":{"[":{"auth":"OjE="}}}`), "a.b/c@sha256:"+strings.Repeat("1", 64))
	f.Fuzz(func(t *testing.T, text []byte, image string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		found := c.For(image)
		if found == nil {
			return
		}
		host, _, _ := strings.Cut(image, "/")
		for _, e := range c.entries {
			if e.auth == *found && (e.host == host || strings.ContainsAny(e.host, "*?[\\") || e.host == "index.docker.io") {
				return
			}
		}
		t.Errorf("%q gets credentials of another host", image)
	})
}
