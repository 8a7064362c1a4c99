package cmd

import (
	"math"
	"runtime/debug"
	"strconv"
)

// memoryVariable has the memory in bytes that the pod may take; the chart sets it from the limit of the container.
const memoryVariable = "MEMORY_LIMIT"

// limitMemory has Go collect garbage before the process comes near the memory that it may take: otherwise the heap may double before it does,
// and the kernel ends the process while half of it is garbage. A tenth is left for what Go does not count. GOMEMLIMIT goes first.
func limitMemory(lookup func(string) (string, bool)) {
	if _, set := lookup("GOMEMLIMIT"); set {
		return
	}
	text, _ := lookup(memoryVariable)
	if limit, err := strconv.ParseInt(text, 10, 64); err == nil && limit > 0 && limit < math.MaxInt64/10 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
