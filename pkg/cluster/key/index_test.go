package key

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIndexesAreLowestFreeAndStable: a new node gets the lowest free index, and no index changes.
func TestIndexesAreLowestFreeAndStable(t *testing.T) {
	type indexes = map[string]int32
	for name, test := range map[string]struct {
		current indexes
		nodes   []string
		want    indexes
	}{
		"the first node gets 1":                                   {nil, []string{"a"}, indexes{"a": 1}},
		"an empty cluster has no indexes":                         {indexes{}, nil, indexes{}},
		"nodes get them in order":                                 {nil, []string{"a", "b", "c"}, indexes{"a": 1, "b": 2, "c": 3}},
		"after 1, 2, 3 comes 4":                                   {indexes{"a": 1, "b": 2, "c": 3}, []string{"a", "b", "c", "d"}, indexes{"a": 1, "b": 2, "c": 3, "d": 4}},
		"a hole is filled first":                                  {indexes{"a": 1, "b": 2, "c": 4}, []string{"a", "b", "c", "d"}, indexes{"a": 1, "b": 2, "c": 4, "d": 3}},
		"after the hole comes the end":                            {indexes{"a": 1, "b": 2, "c": 4}, []string{"a", "b", "c", "d", "e"}, indexes{"a": 1, "b": 2, "c": 4, "d": 3, "e": 5}},
		"an index freed in this pass is not reused in it":         {indexes{"a": 1, "b": 2}, []string{"b", "c"}, indexes{"b": 2, "c": 3}},
		"an index freed in an earlier pass is reused":             {indexes{"b": 2}, []string{"b", "c"}, indexes{"b": 2, "c": 1}},
		"the order of the list does not matter to those who have": {indexes{"a": 1, "b": 2}, []string{"b", "a"}, indexes{"a": 1, "b": 2}},
		"a node that goes loses its index":                        {indexes{"a": 1, "b": 2}, []string{"a"}, indexes{"a": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.current)
			if diff := cmp.Diff(test.want, AssignIndexes(test.current, test.nodes)); diff != "" {
				t.Errorf("other indexes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.current); diff != "" {
				t.Errorf("the indexes passed in were changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestIndexesHoldTheirRulesOverAnyHistory adds and removes nodes at random.
func TestIndexesHoldTheirRulesOverAnyHistory(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		current, nodes := map[string]int32{}, []string(nil)
		for step := range 30 {
			nodes = slices.DeleteFunc(nodes, func(string) bool { return random.IntN(4) == 0 })
			for i := range random.IntN(4) {
				nodes = append(nodes, fmt.Sprintf("n%d-%d", step, i))
			}
			random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
			next := AssignIndexes(current, nodes)
			if broken := brokenIndexRule(current, nodes, next); broken != "" {
				t.Fatalf("seed %d, step %d: %s\nnodes %v\nbefore %v\nafter  %v", seed, step, broken, nodes, current, next)
			}
			current = next
		}
	}
}

func brokenIndexRule(before map[string]int32, nodes []string, after map[string]int32) string {
	if len(after) != len(nodes) {
		return "not one index a node"
	}
	heldBefore := map[int32]bool{}
	for _, index := range before {
		heldBefore[index] = true
	}
	seen := map[int32]bool{}
	for _, id := range nodes {
		index := after[id]
		old, had := before[id]
		switch {
		case index < 1:
			return id + " has an index below 1"
		case seen[index]:
			return id + " shares its index"
		case had && index != old:
			return id + " got another index"
		case !had && heldBefore[index]:
			return id + " got an index that was held when the pass began"
		}
		seen[index] = true
	}
	for index := int32(1); index < slices.Max(append(slices.Collect(maps.Values(after)), 1)); index++ {
		newest := slices.ContainsFunc(nodes, func(id string) bool { _, had := before[id]; return !had && after[id] > index })
		if newest && !seen[index] && !heldBefore[index] {
			return fmt.Sprintf("%d is free and a new node has a higher one", index)
		}
	}
	return ""
}
