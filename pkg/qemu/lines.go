package qemu

import (
	"bytes"
	"regexp"
	"strings"
)

// lines is a writer that remembers the last lines of what is written to it. Neither a guest nor QEMU can fill the memory.
type lines struct {
	// keep is how many lines it remembers.
	keep int
	// each is called with every line that is complete; nil is fine.
	each func(line string)

	last    []string
	current []byte
}

const maxLine = 512

// unprintable is what a terminal would obey: a guest's console may hold it, a log must not.
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

// String is the last lines, the one that is not complete among them.
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
