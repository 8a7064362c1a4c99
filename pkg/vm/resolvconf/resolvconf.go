// Package resolvconf reads the configuration of the resolver (resolv.conf(5)).
package resolvconf

import (
	"errors"
	"os"
	"strings"
)

// Path is the file of the host, or of the pod.
const Path = "/etc/resolv.conf"

// Entries reads the values of a keyword, such as nameserver, in all lines of a file that begin with it. A missing file has
// no values.
func Entries(path, keyword string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var values []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == keyword {
			values = append(values, fields[1:]...)
		}
	}
	return values, nil
}
