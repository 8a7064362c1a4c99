package disk

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxSize leaves room for rounding up to whole sectors.
const maxSize = math.MaxInt64 - sector

// units are the suffixes of GNU truncate -s. As there, the first four may be lower-case when they stand alone.
var units = map[string]int64{
	"":  1,
	"K": 1 << 10, "KiB": 1 << 10, "KB": 1e3, "k": 1 << 10,
	"M": 1 << 20, "MiB": 1 << 20, "MB": 1e6, "m": 1 << 20,
	"G": 1 << 30, "GiB": 1 << 30, "GB": 1e9, "g": 1 << 30,
	"T": 1 << 40, "TiB": 1 << 40, "TB": 1e12, "t": 1 << 40,
	"P": 1 << 50, "PiB": 1 << 50, "PB": 1e15,
	"E": 1 << 60, "EiB": 1 << 60, "EB": 1e18,
}

// ParseSize parses the size of a disk as GNU truncate -s does, in bytes: "5G" and "5GiB" are 5·2³⁰, "5GB" is 5·10⁹, "5"
// is 5 bytes. Sizes relative to that of the file ("+5G") are rejected, and so is 0.
func ParseSize(s string) (int64, error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	number, suffix := s[:digits], s[digits:]
	unit, ok := units[suffix]
	if number == "" || !ok {
		return 0, fmt.Errorf("size %q is not a number with K, M, G, T, P or E for powers of 1024, or KB, MB and so on for powers of 1000", s)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > maxSize/unit {
		return 0, fmt.Errorf("size %q is more than a disk can have", s)
	}
	if n == 0 {
		return 0, fmt.Errorf("size %q is nothing", s)
	}
	return n * unit, nil
}
