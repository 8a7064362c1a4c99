package etcd

import (
	"testing"
)

// TestUpkeepOfEverySituation covers all clusters of up to five members whose files are small, fragmented, full of free
// space or full of data: upkeep helps, never touches the leader before the others, and ends with a cluster that accepts
// writes or reports why it does not.
func TestUpkeepOfEverySituation(t *testing.T) {
	const quota = 1 << 30
	kinds := []Database{
		{Size: 10 << 20, InUse: 1 << 20, Quota: quota}, // too small to be worth it
		{Size: 200 << 20, InUse: 180 << 20, Quota: quota},
		{Size: 500 << 20, InUse: 100 << 20, Quota: quota},
		{Size: quota, InUse: 400 << 20, Quota: quota},
		{Size: quota, InUse: 900 << 20, Quota: quota},
	}
	count := 0
	var grow func(databases []Database)
	grow = func(databases []Database) {
		for leader := range databases {
			for _, full := range []bool{false, true} {
				for _, old := range []int64{0, 1} { // whether old revisions are what fills the file
					situation := make([]Database, len(databases))
					for i, d := range databases {
						d.Member = Member{ID: uint64(i + 1), Name: masterNamed(i).Name, Healthy: true, Leader: i == leader}
						situation[i] = d
					}
					followUpkeep(t, situation, full, old == 1)
					count++
				}
			}
		}
		if len(databases) < 5 {
			for _, k := range kinds {
				grow(append(databases[:len(databases):len(databases)], k))
			}
		}
	}
	grow(nil)
	visited(t, count, 74_220)
}

// followUpkeep carries out upkeep until there is none, or the database is full of data that is needed.
func followUpkeep(t *testing.T, all []Database, full, old bool) {
	t.Helper()
	compacted := false
	for range 4 * (len(all) + 1) {
		step := Maintain(all, full)
		if (step.Action == None) != (step.Reason == "") || step.Action != None && step.Message == "" {
			t.Fatalf("%+v does not say why", step)
		}
		switch step.Action {
		case None:
			if full {
				t.Fatalf("nothing is done for %+v, which take no writes", all)
			}
			return
		case Compact:
			if !full {
				t.Fatalf("%+v are compacted without need", all)
			}
			if compacted {
				return // it is reported to users
			}
			compacted = true
			for i := range all {
				if old {
					all[i].InUse = min(all[i].InUse, 50<<20)
				}
			}
		case Defragment:
			at := int(step.Member.ID - 1)
			for _, d := range all {
				if step.Member.Leader && !d.Member.Leader && fragmented(d, full) {
					t.Fatalf("the leader is defragmented before %+v", d)
				}
			}
			defragmented := all[at].InUse + all[at].InUse/20 + 64<<10
			if all[at].Size <= defragmented {
				t.Fatalf("there is nothing to win in %+v", all[at])
			}
			all[at].Size = defragmented
		case Disarm:
			for _, d := range all {
				if percent(d.InUse, d.Quota) > fullPercent || d.Size >= d.Quota {
					t.Fatalf("writes are let in while %+v is full", d)
				}
			}
			full = false
		default:
			t.Fatalf("%+v is no upkeep", step)
		}
	}
	t.Fatalf("no end is in sight for %+v", all)
}
