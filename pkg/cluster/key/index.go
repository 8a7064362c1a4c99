package key

import "maps"

// AssignIndexes assigns every node its index: nodes keep theirs, removed ones lose theirs, and a new one gets the
// lowest index from 1 that no node held at the start, so that an index that is freed now is not reused now.
func AssignIndexes(current map[string]int32, nodeIDs []string) map[string]int32 {
	taken := map[int32]bool{}
	for index := range maps.Values(current) {
		taken[index] = true
	}
	assigned := make(map[string]int32, len(nodeIDs))
	next := int32(1)
	for _, id := range nodeIDs {
		if index, ok := current[id]; ok {
			assigned[id] = index
			continue
		}
		for taken[next] {
			next++
		}
		assigned[id] = next
		taken[next] = true
	}
	return assigned
}
