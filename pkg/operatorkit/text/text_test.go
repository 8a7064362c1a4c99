package text_test

import (
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

func TestBeginning(t *testing.T) {
	for _, test := range []struct {
		of   string
		most int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "…"}, {"abcdef", 5, "ab…"}, {"aüüü", 5, "a…"}, {"aüüü", 6, "aü…"}, {"a\xffb", 3, "a\xffb"}, {"a\xffbcdef", 6, "ab…"},
	} {
		if got := text.Beginning(test.of, test.most); got != test.want {
			t.Errorf("the beginning of %q, %d bytes at most, is %q, want %q", test.of, test.most, got, test.want)
		}
	}
}
