package keeper

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// terminationSize is how much of a termination message the kubelet keeps, in bytes.
const terminationSize = 4096

// WriteTermination stores why a machine ended, and the last output of its console, for the kubelet. Without a path it
// does nothing.
func WriteTermination(path string, end End, console []byte) error {
	if path == "" {
		return nil
	}
	return os.WriteFile(path, []byte(terminationMessage(end, console)), 0o600)
}

// terminationMessage begins with the reason and contains as much of the console's end as fits. It becomes part of a
// pod's status, so it is valid text without the control characters of a terminal.
func terminationMessage(end End, console []byte) string {
	const heading = "\nconsole:\n"
	text := cutOff(plain(fmt.Sprintf("%s: %s", end.Reason, end.Message)), terminationSize/2) + "\n"
	tail := plain(string(console))
	room := terminationSize - len(text) - len(heading)
	for len(tail) > room {
		_, size := utf8.DecodeRuneInString(tail)
		tail = tail[size:]
	}
	if tail == "" {
		return text
	}
	return text + heading + tail
}

// cutOff shortens text to n bytes without splitting a character.
func cutOff(text string, n int) string {
	for len(text) > n {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// escapeSequence matches what moves a terminal's cursor or colors its text (ECMA-48, 5.4).
var escapeSequence = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(escapeSequence.ReplaceAllString(text, ""), "\uFFFD"))
}
