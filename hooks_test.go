package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommitMessages: which messages the hook of `make hooks` accepts and rejects.
func TestCommitMessages(t *testing.T) {
	for message, want := range map[string]string{
		"Add a flag\n": "",
		"Add a flag\n\nBecause users ask for it.":         "",
		"Add a flag\n# Please enter the commit message\n": "",
		"Merge branch 'main' into a":                      "",
		"Revert \"Added a flag.\"":                        "",
		strings.Repeat("A", 72) + "\n":                    "",
		strings.Repeat("A", 73) + "\n":                    "73 characters",
		"\n":                                              "is empty",
		"Add a flag.\n":                                   "full stop",
		"add a flag\n":                                    "capital letter",
		"Added a flag\n":                                  "imperative",
		"Adding a flag\n":                                 "imperative",
		"Add a flag\nbecause users ask for it\n":          "empty line",
	} {
		file := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(file, []byte(message), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := exec.Command(".githooks/commit-msg", file).CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(output), want) {
			t.Errorf("%q: %v, %q; want %q", message, err, output, want)
		}
	}
}
