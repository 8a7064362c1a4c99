package cmd

import (
	"errors"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
)

// forPeople returns a writer for what a guest prints, or its node says: a terminal gets no control characters, which could
// type commands of the guest, or rewrite what was printed before. Files and pipes get all as it is.
func forPeople(out io.Writer) io.Writer {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &plainWriter{out: file}
	}
	return out
}

// plainWriter writes text as plain does. A character that is cut at the end of the last write is left out.
type plainWriter struct {
	out io.Writer
	cut []byte
}

// Write implements io.Writer.
func (w *plainWriter) Write(text []byte) (int, error) {
	all := append(w.cut, text...)
	end := len(all)
	for i := end - 1; i >= max(0, end-utf8.UTFMax); i-- {
		if utf8.RuneStart(all[i]) {
			if !utf8.FullRune(all[i:]) {
				end = i
			}
			break
		}
	}
	w.cut = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(w.out, plain(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// plain returns a text with its control characters, except ends of lines and tabs, as cat -v shows them. What is not UTF-8,
// and may be a control character elsewhere, becomes U+FFFD.
func plain(text string) string {
	var shown strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			shown.WriteRune(r)
		case r < ' ' || r == unicode.MaxASCII:
			shown.WriteString("^" + string(r^0x40))
		case unicode.IsControl(r):
			shown.WriteRune(utf8.RuneError)
		default:
			shown.WriteRune(r)
		}
	}
	return shown.String()
}

// plainError is an error whose text may have words of a node, such as those of a condition.
type plainError struct{ error }

// Error has no control characters.
func (e plainError) Error() string { return plain(e.error.Error()) }

// Unwrap returns the error as it is.
func (e plainError) Unwrap() error { return e.error }

// plainly returns an error that may be printed on a terminal. One that has said why stays without words.
func plainly(err error) error {
	var exit *runner.ExitError
	if err == nil || errors.As(err, &exit) && exit.Message == "" {
		return err
	}
	return plainError{err}
}
