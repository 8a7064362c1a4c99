package qemu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLastLinesAreRemembered(t *testing.T) {
	for name, test := range map[string]struct {
		keep   int
		writes []string
		want   string
		each   []string
	}{
		"nothing":                         {keep: 2, want: ""},
		"the last ones":                   {keep: 2, writes: []string{"a\nb\nc\n"}, want: "b; c", each: []string{"a", "b", "c"}},
		"lines in pieces":                 {keep: 1, writes: []string{"a", "b", "\nc\n", "\n"}, want: "c", each: []string{"ab", "c"}},
		"one that is not complete counts": {keep: 2, writes: []string{"a\nb\nc"}, want: "b; c", each: []string{"a", "b"}},
		"empty ones do not":               {keep: 2, writes: []string{"a\n\n \r\n\x1b[2J\n"}, want: "a", each: []string{"a"}},
		"what a terminal would obey is left out": {
			keep: 1, writes: []string{"\x1bc\x1b[?7l\x1b[0mBooting\x07 from ROM\xff..\r\n"}, want: "Booting from ROM..", each: []string{"Booting from ROM.."},
		},
		"long ones are cut": {keep: 1, writes: []string{strings.Repeat("x", 400), strings.Repeat("y", 400) + "\n"}, want: strings.Repeat("x", 400) + strings.Repeat("y", 112), each: []string{strings.Repeat("x", 400) + strings.Repeat("y", 112)}},
	} {
		t.Run(name, func(t *testing.T) {
			var each []string
			l := &lines{keep: test.keep, each: func(line string) { each = append(each, line) }}
			for _, text := range test.writes {
				if _, err := fmt.Fprint(l, text); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, l.String()); diff != "" {
				t.Errorf("last lines:\n%s", diff)
			}
			if diff := cmp.Diff(test.each, each); diff != "" {
				t.Errorf("each line:\n%s", diff)
			}
		})
	}
}
