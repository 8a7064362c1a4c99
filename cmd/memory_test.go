package cmd

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestMemoryStaysBelowTheLimitOfThePod(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for name, test := range map[string]struct {
		environment map[string]string
		want        int64
	}{
		"nine tenths of the limit": {map[string]string{memoryVariable: "524288000"}, 471859200},
		"Go's own variable":        {map[string]string{memoryVariable: "524288000", "GOMEMLIMIT": "1GiB"}, math.MaxInt64},
		"no limit":                 {nil, math.MaxInt64},
		"no number":                {map[string]string{memoryVariable: "500Mi"}, math.MaxInt64},
		"nothing":                  {map[string]string{memoryVariable: "0"}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			limitMemory(func(name string) (string, bool) { value, ok := test.environment[name]; return value, ok })
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("the limit is %d, want %d", got, test.want)
			}
		})
	}
}
