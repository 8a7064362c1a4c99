package etcd

import (
	"fmt"
	"slices"
	"strings"
)

// Database is the file of one member.
type Database struct {
	Member Member
	// Size is that of the file in bytes, InUse what of it holds data, and Quota the size at which etcd takes no more writes.
	Size, InUse, Quota int64
}

// Actions of upkeep.
const (
	// Compact forgets old revisions of all keys, so that the database has room again.
	Compact Action = "Compact"
	// Defragment makes the file of Step.Member as small as what it holds. The member answers nobody meanwhile.
	Defragment Action = "Defragment"
	// Disarm takes back the alarm after which etcd takes no writes.
	Disarm Action = "Disarm"
)

// Reasons of upkeep.
const (
	ReasonFull          = "Full"
	ReasonDefragmenting = "Defragmenting"
)

const (
	// worthwhile and fragmentedPercent are the size of a file in bytes and the percentage of it that holds nothing from which on it
	// is defragmented: those of OpenShift's cluster-etcd-operator (pkg/operator/defragcontroller).
	worthwhile        = 100 << 20
	fragmentedPercent = 45
	// fullPercent is how much of the quota may hold data for writes to be let in again.
	fullPercent = 80
	// reclaimablePercent is how much of the quota there must be to win for a file to be defragmented while etcd takes no writes. A small
	// file always holds a good deal of nothing, and stays as it is.
	reclaimablePercent = 10
	// room is what a file and its smaller copy may have in bytes while both are there: the disk of a member has 12 GiB, and its log is there, too.
	room = 11 << 30
)

// Maintain says what a cluster whose members are all well needs so that it goes on taking writes. full says that etcd has taken none
// since a file reached its quota.
//
// A member that is defragmented answers nobody, so it is one at a time, and the leader comes last.
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
				"much of the database of %s holds nothing, and it is defragmented", d.Member.label())}
		}
	}
	if full {
		return Step{Action: Disarm, Reason: ReasonFull, Message: "there is room in the database again"}
	}
	return Step{Action: None}
}

// most is how much of a full file may be in use for it to be defragmented and writes to be let in again, in bytes.
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
