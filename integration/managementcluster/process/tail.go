package process

import (
	"io"
	"os"
	"strings"
)

// tailBytes is how far back from the end of a file Tail looks.
const tailBytes = 16 << 10

// Tail returns the last lines of a file, each shortened to what fits on a screen and indented by four spaces.
func Tail(path string, lines int) (string, error) { return tail(path, 0, lines) }

// tail is Tail without what stands before a position in the file.
func tail(path string, from int64, lines int) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if _, err := file.Seek(max(from, info.Size()-tailBytes), io.SeekStart); err != nil {
		return "", err
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	last := all[max(0, len(all)-lines):]
	for i, line := range last {
		last[i] = "    " + line[:min(len(line), 400)]
	}
	return strings.Join(last, "\n"), nil
}
