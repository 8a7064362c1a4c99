package scale_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// The goals of docs/benchmarks.md. A figure beyond one is printed and fails nothing: times depend on what else the machine
// does.
const (
	goalRatio        = 1.5  // time until all clusters are complete, divided by the plain client's
	goalOne          = 2.0  // time of one more cluster, divided by the plain client's
	goalMiB          = 100  // of 1,000 clusters
	goalRestart      = 3.0  // time of a restart, divided by that of listing the same objects
	goalRestartWrite = 0    // writes of a restart
	goalExponent     = 1.05 // of how the time grows with the number of clusters
)

func (r result) ratio() float64    { return r.operator.Seconds() / r.plain.Seconds() }
func (r result) oneRatio() float64 { return r.one.Seconds() / r.onePlain.Seconds() }
func (r result) mib() float64 {
	return float64(r.clusterHeap) / float64(r.clusters) * thousand / (1 << 20)
}

func (r result) restartRatio() float64 { return r.restart.took.Seconds() / r.restart.lists.Seconds() }

// exponent returns how the time grows from one number of clusters to a larger one.
func exponent(from, to result) float64 {
	return math.Log(to.operator.Seconds()/from.operator.Seconds()) / math.Log(float64(to.clusters)/float64(from.clusters))
}

// verdicts returns a line for each goal: the goal, and for each number of clusters the figure and whether it was met.
func verdicts(results []result) []string {
	lines := []string{
		verdict("time divided by the plain client's", "%.2f", goalRatio, results, result.ratio),
		verdict("one more divided by the plain client's", "%.2f", goalOne, results, result.oneRatio),
		verdict("MiB per 1,000 clusters", "%.0f", goalMiB, results, result.mib),
		verdict("restart divided by listing", "%.2f", goalRestart, results, result.restartRatio),
		verdict("writes of a restart", "%.0f", goalRestartWrite, results, func(r result) float64 { return float64(r.restart.writes) }),
	}
	if len(results) > 1 {
		from, to := results[len(results)-2], results[len(results)-1]
		line := verdict("exponent of the time", "%.2f", goalExponent, []result{to}, func(to result) float64 { return exponent(from, to) })
		lines = append(lines, strings.Replace(line, "with ", fmt.Sprintf("from %d to ", from.clusters), 1))
	}
	return lines
}

func verdict(what, format string, goal float64, results []result, of func(result) float64) string {
	var parts []string
	for _, r := range results {
		met := "not met"
		if of(r) <= goal { // not so for a figure that was not measured, which is no number
			met = "met"
		}
		parts = append(parts, fmt.Sprintf("with %d: "+format+" (%s)", r.clusters, of(r), met))
	}
	return fmt.Sprintf("goal of %s, at most %v: %s", what, goal, strings.Join(parts, ", "))
}

// TestVerdicts: each goal is beside its figures, and a figure meets its goal up to the goal itself.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	good := result{
		clusters: 10, operator: 15 * time.Second, plain: 10 * time.Second, one: 2 * time.Second, onePlain: time.Second, clusterHeap: 1 << 20,
		restart: restart{took: 3 * time.Second, lists: time.Second},
	}
	bad := result{
		clusters: 100, operator: 200 * time.Second, plain: 100 * time.Second, one: 3 * time.Second, onePlain: time.Second, clusterHeap: 20 << 20,
		restart: restart{took: 4 * time.Second, lists: time.Second, writes: 1},
	}
	want := []string{
		"goal of time divided by the plain client's, at most 1.5: with 10: 1.50 (met), with 100: 2.00 (not met)",
		"goal of one more divided by the plain client's, at most 2: with 10: 2.00 (met), with 100: 3.00 (not met)",
		"goal of MiB per 1,000 clusters, at most 100: with 10: 100 (met), with 100: 200 (not met)",
		"goal of restart divided by listing, at most 3: with 10: 3.00 (met), with 100: 4.00 (not met)",
		"goal of writes of a restart, at most 0: with 10: 0 (met), with 100: 1 (not met)",
		"goal of exponent of the time, at most 1.05: from 10 to 100: 1.12 (not met)",
	}
	if got := verdicts([]result{good, bad}); !slices.Equal(got, want) {
		t.Errorf("verdicts are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
