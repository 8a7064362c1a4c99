package disk

import (
	"math"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	for name, c := range map[string]struct {
		size string
		want int64
		err  string
	}{
		"a number alone is bytes": {size: "4096", want: 4096},
		"G is a power of 1024":    {size: "5G", want: 5 << 30},
		"GiB is, too":             {size: "5GiB", want: 5 << 30},
		"GB is a power of 1000":   {size: "5GB", want: 5e9},
		"lower-case stands alone": {size: "40g", want: 40 << 30},
		"kilo":                    {size: "3K", want: 3072},
		"mega":                    {size: "3M", want: 3 << 20},
		"tera":                    {size: "2T", want: 2 << 40},
		"the largest there is":    {size: "7E", want: 7 << 60},
		"one more is too many":    {size: "8E", err: "more than a disk can have"},
		"a number beyond 64 bits": {size: "99999999999999999999", err: "more than a disk can have"},
		"nothing":                 {size: "0", err: "is nothing"},
		"nothing with a unit":     {size: "0G", err: "is nothing"},
		"empty":                   {size: "", err: "is not a number"},
		"a unit alone":            {size: "G", err: "is not a number"},
		"a fraction":              {size: "1.5G", err: "is not a number"},
		"relative to the file":    {size: "+5G", err: "is not a number"},
		"negative":                {size: "-5G", err: "is not a number"},
		"a space before the unit": {size: "5 G", err: "is not a number"},
		"lower-case with B, which truncate refuses": {size: "5gb", err: "is not a number"},
		"digits of another script":                  {size: "٥G", err: "is not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSize(c.size)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"5G", "1KB", "8388607T", "0x10", "１G", "9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		size, err := ParseSize(s)
		if err != nil {
			return
		}
		if size < 1 || size > math.MaxInt64-sector {
			t.Errorf("ParseSize(%q) is %d", s, size)
		}
	})
}
