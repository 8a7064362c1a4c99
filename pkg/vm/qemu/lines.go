package qemu

import (
	"bytes"
	"regexp"
	"strings"
)

// lines is a writer that keeps the last lines that were written to it. Its memory is bounded, whatever a guest or QEMU
// writes.
type lines struct {
	// keep is how many lines it keeps.
	keep int
	// each is called with every complete line; it may be nil.
	each func(line string)

	last    []string
	current []byte
}

const maxLine = 512

// unprintable matches what a terminal would interpret: a guest's console may contain it, a log must not.
var unprintable = regexp.MustCompile(`\x1b\[[0-9;?=]*[A-Za-z]|\x1b[a-z]|[^ -~]`)

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	rest := p
	for {
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		l.current = append(l.current, line[:min(len(line), maxLine-len(l.current))]...)
		if !complete {
			return len(p), nil
		}
		l.end()
		rest = after
	}
}

func (l *lines) end() {
	line := readable(l.current)
	l.current = l.current[:0]
	if line == "" {
		return
	}
	l.last = append(l.last, line)
	l.last = l.last[max(0, len(l.last)-l.keep):]
	if l.each != nil {
		l.each(line)
	}
}

// String returns the last lines, including the incomplete one.
func (l *lines) String() string {
	last := l.last
	if line := readable(l.current); line != "" {
		last = append(append([]string{}, last...), line)
	}
	return strings.Join(last[max(0, len(last)-l.keep):], "; ")
}

func readable(line []byte) string {
	return strings.TrimSpace(string(unprintable.ReplaceAll(line, nil)))
}
