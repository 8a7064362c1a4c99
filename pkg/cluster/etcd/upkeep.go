package etcd

import (
	"fmt"
	"slices"
	"strings"
)

// Database is the database file of one member.
type Database struct {
	Member Member
	// Size is the size of the file in bytes, InUse how much of it holds data, and Quota the size at which etcd rejects
	// writes.
	Size, InUse, Quota int64
}

// Actions of upkeep.
const (
	// Compact drops old revisions of all keys to free space in the database.
	Compact Action = "Compact"
	// Defragment shrinks the file of Step.Member to its content. The member does not respond meanwhile.
	Defragment Action = "Defragment"
	// Disarm disarms the alarm that makes etcd reject writes.
	Disarm Action = "Disarm"
)

// Reasons of upkeep.
const (
	ReasonFull          = "Full"
	ReasonDefragmenting = "Defragmenting"
)

const (
	// worthwhile is the size of a file in bytes, and fragmentedPercent the percentage of it that holds no data, from
	// which on it is defragmented: the same values as in OpenShift's cluster-etcd-operator
	// (pkg/operator/defragcontroller).
	worthwhile        = 100 << 20
	fragmentedPercent = 45
	// fullPercent is up to which percentage of the quota may hold data for writes to be accepted again.
	fullPercent = 80
	// reclaimablePercent is which percentage of the quota must be reclaimable for a file to be defragmented while etcd
	// rejects writes. A small file always has much free space, and is left as it is.
	reclaimablePercent = 10
	// room is how many bytes a file and its smaller copy may have while both exist: a member's disk has 12 GiB, and
	// etcd's log is on it as well.
	room = 11 << 30
)

// Maintain returns what a cluster whose members are all healthy needs so that it continues to accept writes. full says
// that etcd has rejected writes since a file reached its quota.
//
// A member does not respond while it is defragmented, so members are defragmented one at a time, and the leader last.
func Maintain(databases []Database, full bool) Step {
	if full {
		for _, d := range databases {
			if percent(d.InUse, d.Quota) > fullPercent || d.Size+d.InUse > room {
				return Step{Action: Compact, Member: d.Member, Reason: ReasonFull, Message: fmt.Sprintf(
					"the database of %s is full: delete objects of the workload cluster until %d MiB of it are in use", d.Member.label(), most(d)>>20)}
			}
		}
	}
	sorted := slices.SortedFunc(slices.Values(databases), func(a, b Database) int {
		if order := compareBool(a.Member.Leader, b.Member.Leader); order != 0 {
			return order
		}
		return strings.Compare(a.Member.label(), b.Member.label())
	})
	for _, d := range sorted {
		if fragmented(d, full) {
			return Step{Action: Defragment, Member: d.Member, Reason: ReasonDefragmenting, Message: fmt.Sprintf(
				"much of the database of %s is free space; it is defragmented", d.Member.label())}
		}
	}
	if full {
		return Step{Action: Disarm, Reason: ReasonFull, Message: "the database has free space again; writes are enabled"}
	}
	return Step{Action: None}
}

// most returns how many bytes of a full file may be in use for it to be defragmented and writes to be accepted again.
func most(d Database) int64 { return min(d.Quota*fullPercent/100, room-d.Size) }

func fragmented(d Database, full bool) bool {
	nothing := d.Size - d.InUse
	if d.Size+d.InUse > room {
		return false
	}
	if full {
		return percent(nothing, d.Quota) >= reclaimablePercent
	}
	return d.Size >= worthwhile && percent(nothing, d.Size) >= fragmentedPercent
}

func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}
