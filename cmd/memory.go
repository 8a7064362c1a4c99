package cmd

import (
	"math"
	"runtime/debug"
	"strconv"
)

// memoryVariable names the variable with the pod's memory limit in bytes. The chart sets it from the limit of the
// container.
const memoryVariable = "MEMORY_LIMIT"

// limitMemory makes Go collect garbage before the process reaches its memory limit. Otherwise the heap may double
// before a collection, and the kernel kills the process while half of the heap is garbage. A tenth of the limit is left
// for memory that Go does not count. GOMEMLIMIT takes precedence.
func limitMemory(lookup func(string) (string, bool)) {
	if _, set := lookup("GOMEMLIMIT"); set {
		return
	}
	text, _ := lookup(memoryVariable)
	if limit, err := strconv.ParseInt(text, 10, 64); err == nil && limit > 0 && limit < math.MaxInt64/10 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
