package cloudconfig

import (
	"testing"

	"github.com/vincent-petithory/dataurl"
)

// TestEscapeIsThatOfDataURLs: other bytes in boot data would replace all machines.
func TestEscapeIsThatOfDataURLs(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c), 'a')
	}
	for _, text := range []string{"", "a b\n", "größe", string(all)} {
		if got, want := escape(text), dataurl.EscapeString(text); got != want {
			t.Errorf("escape(%q) = %q, want %q", text, got, want)
		}
	}
}
