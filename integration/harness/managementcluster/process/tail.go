package process

import (
	"io"
	"os"
	"strings"
)

// tailBytes is how many bytes from the end of a file Tail reads.
const tailBytes = 16 << 10

// Tail returns the last lines of a file, each shortened to the width of a screen and indented by four spaces.
func Tail(path string, lines int) (string, error) { return tail(path, 0, lines) }

// tail is Tail without the text before a position in the file.
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
