package smolvmruntime

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func uid(text string) types.UID { return types.UID(text) }

func TestBearer(t *testing.T) {
	for sentence, test := range map[string]struct {
		values []string
		want   string
	}{
		"the usual header":         {[]string{"Bearer abc"}, "abc"},
		"the scheme has no case":   {[]string{"bEaReR abc"}, "abc"},
		"no header":                {nil, ""},
		"two headers":              {[]string{"Bearer abc", "Bearer abc"}, ""},
		"no scheme":                {[]string{"abc"}, ""},
		"another scheme":           {[]string{"Basic abc"}, ""},
		"an empty token":           {[]string{"Bearer "}, ""},
		"two spaces":               {[]string{"Bearer  abc"}, ""},
		"a space in the token":     {[]string{"Bearer abc def"}, ""},
		"a control character":      {[]string{"Bearer abc\x00"}, ""},
		"what is not ASCII":        {[]string{"Bearer abcé"}, ""},
		"a token without an end":   {[]string{"Bearer " + strings.Repeat("a", maxToken+1)}, ""},
		"the longest token":        {[]string{"Bearer " + strings.Repeat("a", maxToken)}, strings.Repeat("a", maxToken)},
		"a list, as proxies write": {[]string{"Bearer abc,Bearer def"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := bearer(http.Header{"Authorization": test.values}); got != test.want {
				t.Errorf("the token is %.20q", got)
			}
		})
	}
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"Bearer abc", "Bearer ", "Bearer\tabc", "Basic YQ==", "bearer a b", "Bearer \xff", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token := bearer(http.Header{"Authorization": {value}})
		if token == "" {
			return
		}
		if !strings.HasSuffix(value, token) || len(value) != len("Bearer ")+len(token) || strings.ContainsAny(token, " \t\r\n\x00") || len(token) > maxToken {
			t.Errorf("%q became %q", value, token)
		}
	})
}

func TestTokensOfFiles(t *testing.T) {
	directory := t.TempDir()
	for sentence, test := range map[string]struct {
		content, token string
		want           bool
	}{
		"the same":                     {"secret", "secret", true},
		"a line break at the end":      {"secret\n", "secret", true},
		"another":                      {"secret", "Secret", false},
		"the beginning":                {"secret", "sec", false},
		"no token for a token":         {"secret", "", false},
		"no token for an empty file":   {"", "", false},
		"no token for an empty line":   {"\n", "", false},
		"a token for an empty file":    {"", "secret", false},
		"white space is no token":      {" \n", " ", false},
		"a longer one than it may be ": {strings.Repeat("a", maxToken+1), strings.Repeat("a", maxToken+1), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			path := filepath.Join(directory, "token")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, _ := tokenFile(path).Authenticate(t.Context(), test.token); got != test.want {
				t.Errorf("accepted: %v", got)
			}
		})
	}
	if ok, err := tokenFile(filepath.Join(directory, "missing")).Authenticate(t.Context(), "secret"); ok || err == nil {
		t.Errorf("a file that is missing accepts %v: %v", ok, err)
	}
	if ok, _ := fixedToken("").Authenticate(t.Context(), ""); ok {
		t.Error("an empty token accepts itself")
	}
}

// TestOneOfSeveralAccepts: a token that one way does not know may be right for the other.
func TestOneOfSeveralAccepts(t *testing.T) {
	missing := tokenFile(filepath.Join(t.TempDir(), "missing"))
	both := authenticators{missing, fixedToken("secret")}
	if ok, err := both.Authenticate(t.Context(), "secret"); !ok || err != nil {
		t.Errorf("accepted %v: %v", ok, err)
	}
	if ok, err := both.Authenticate(t.Context(), "other"); ok || err == nil {
		t.Errorf("accepted %v: %v", ok, err)
	}
	if ok, err := (authenticators{}).Authenticate(t.Context(), "secret"); ok || err != nil {
		t.Errorf("nothing accepts %v: %v", ok, err)
	}
}
